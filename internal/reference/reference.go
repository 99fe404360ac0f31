// Package reference is a second, naive implementation of windows, summaries,
// anomalies and the provenance DAG. It exists to disagree: it was written from
// docs/rules.md alone, shares nothing with the packages that do the work but
// the step type, and prefers the plain transcription of a rule to speed. Tests
// hold the two to the same bytes, and the oracle recomputes with it what the
// aggregator wrote.
//
// Reading order: windows.go (the log, the clock, what closes when), order.go
// and identity.go (which records stand where, copies, conflicts, decisions and
// their steps), lineage.go (mints and depth), anomalies.go, edges.go and
// dag.go, summary.go, and memory.go (what is left of a sealed segment).
//
// Unlike the real thing it forgets nothing that it may still be asked: a
// sealed segment keeps its records, and the bounded memory of the rules is a
// flag on them.
package reference

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sort"
	"time"

	"github.com/gowebpki/jcs"

	"provstream/internal/acs"
)

// Entry is one record of a partition of prov.steps: a step or a decision, or,
// with Step nil, a tick.
type Entry struct {
	Offset int64
	Step   *acs.Step
	Tick   int64
}

// Log is a partition of prov.steps from its first record on.
type Log []Entry

// Config is the window configuration; the fields are those of the aggregator's
// flags of the same names.
type Config struct {
	CompleteGrace, Grace, SealGrace, TurnIdle, SessionIdle time.Duration
	LateGrace, LateRetention, IdleRetention                time.Duration
	MaxRunWeight                                           int64
	MaxOpenSteps, MaxRunIDs                                int
}

// DefaultConfig is the configuration of a service without flags.
func DefaultConfig() Config {
	return Config{
		CompleteGrace: time.Second, Grace: 10 * time.Second, SealGrace: 10 * time.Second,
		TurnIdle: 15 * time.Minute, SessionIdle: time.Hour, LateGrace: time.Minute,
		LateRetention: 10 * time.Minute, IdleRetention: 24 * time.Hour,
		MaxRunWeight: 4 << 20, MaxOpenSteps: 2_000_000, MaxRunIDs: 200_000,
	}
}

// Kind says to which topic an Emission goes.
type Kind uint8

// The kinds of Emission.
const (
	Turn    Kind = iota // prov.turns
	Session             // prov.sessions
	Run                 // prov.runs
)

// Emission is one output record.
type Emission struct {
	Kind  Kind
	Key   string // run key
	Value []byte // RFC 8785
	ID    string // ce_id
	Time  int64  // ce_time, ms
}

// Fact is an anomaly.
type Fact struct{ Code, StepID, Detail string }

type object = map[string]any

// canonical is RFC 8785 by way of an independent library. What goes in is
// built of Go maps, slices, strings and numbers, so a failure is a bug here.
func canonical(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	// The library takes objects and arrays only: wrap, then unwrap.
	out, err := jcs.Transform(append(append([]byte{'['}, bytes.TrimSpace(b.Bytes())...), ']'))
	if err != nil {
		panic(err)
	}
	return out[1 : len(out)-1]
}

func sha(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// number prints a declared number as JCS prints it.
func number(f float64) string { return string(canonical(f)) }

// sortedSet returns each value once, sorted by bytes.
func sortedSet(values []string) []string {
	seen := map[string]bool{}
	out := []string{}
	for _, v := range values {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	sort.Strings(out)
	return out
}

func setOf(values []string) map[string]bool {
	m := map[string]bool{}
	for _, v := range values {
		m[v] = true
	}
	return m
}

// difference counts what of want is missing in have, and what have has extra.
func difference(want, have map[string]bool) (missing, extra int) {
	for v := range want {
		if !have[v] {
			missing++
		}
	}
	for v := range have {
		if !want[v] {
			extra++
		}
	}
	return missing, extra
}

// Flags gives the values of the aggregator's flags by name; what it does not
// have keeps the default.
type Flags interface {
	Duration(name string, otherwise time.Duration) (time.Duration, error)
	Int(name string, otherwise int64) (int64, error)
}

// ConfigFrom reads a Config from flags.
func ConfigFrom(f Flags) (Config, error) {
	c := DefaultConfig()
	var errs []error
	for name, p := range map[string]*time.Duration{
		"complete-grace": &c.CompleteGrace, "grace": &c.Grace, "seal-grace": &c.SealGrace, "turn-idle": &c.TurnIdle,
		"session-idle": &c.SessionIdle, "late-grace": &c.LateGrace, "late-retention": &c.LateRetention,
		"idle-retention": &c.IdleRetention,
	} {
		d, err := f.Duration(name, *p)
		*p, errs = d, append(errs, err)
	}
	steps, err := f.Int("max-open-steps", int64(c.MaxOpenSteps))
	c.MaxOpenSteps, errs = int(steps), append(errs, err)
	ids, err := f.Int("max-run-ids", int64(c.MaxRunIDs))
	c.MaxRunIDs, errs = int(ids), append(errs, err)
	c.MaxRunWeight, err = f.Int("max-run-weight", c.MaxRunWeight)
	return c, errors.Join(append(errs, err)...)
}
