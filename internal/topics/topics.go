// Package topics is provstream's topology as data: one table that the services,
// the embedded broker, provctl and the tests all read.
//
// Topics marked Partitioned share one partition count: partition p of one
// feeds partition p of the next, and records are always produced to a
// partition explicitly.
package topics

import (
	"strings"
	"time"
)

// Base names; a deployment's prefix stands before each of them.
const (
	HookPrefix      = "acs.hooks."
	Decisions       = "acs.decisions"
	Steps           = "prov.steps"
	DeadLetter      = "prov.dead-letter"
	Coverage        = "prov.coverage"
	Turns           = "prov.turns"
	Sessions        = "prov.sessions"
	Runs            = "prov.runs"
	DAGs            = "prov.dags"
	Checkpoints     = "prov.checkpoints"
	Keys            = "prov.keys"
	AggregatorState = "prov.aggregator.state"
)

const (
	mib = 1 << 20
	day = 24 * time.Hour
)

// Topic is one row of the table.
type Topic struct {
	Name        string // without prefix
	Partitioned bool   // has the deployment's partition count; else one partition
	// Compact and Delete are the two cleanup policies.
	Compact, Delete bool
	// Retention of the delete policy; 0 is unlimited.
	Retention time.Duration
	// MaxMessageBytes of the topic; 0 keeps the broker's default. Producers
	// keep their batches within it.
	MaxMessageBytes int
	// SegmentTime, MaxCompactionLag and DeleteRetention bound how long a
	// compacted topic keeps what is superseded; 0 keeps the broker's default.
	SegmentTime, MaxCompactionLag, DeleteRetention time.Duration
	Holds                                          string // what its records are
}

// All returns the prov.* topics in the order of the data flow. Hook topics and
// acs.decisions belong to the operator and are not in it.
func All() []Topic {
	return []Topic{
		{Name: Steps, Partitioned: true, Delete: true, Retention: 7 * day, MaxMessageBytes: 2 * mib, Holds: "steps, decisions and ticks, by run key"},
		{Name: DeadLetter, Partitioned: true, Delete: true, Retention: 30 * day, MaxMessageBytes: 2 * mib, Holds: "rejected source records, as they came"},
		{Name: Coverage, Partitioned: true, Delete: true, Holds: "what ingest read"},
		{Name: Turns, Partitioned: true, Delete: true, Retention: 30 * day, Holds: "turn summaries"},
		{Name: Sessions, Partitioned: true, Compact: true, Delete: true, Retention: 90 * day, Holds: "session summaries"},
		{Name: Runs, Partitioned: true, Delete: true, Retention: 7 * day, MaxMessageBytes: 10 * mib, Holds: "unsigned DAGs"},
		{Name: DAGs, Partitioned: true, Delete: true, MaxMessageBytes: 10 * mib, Holds: "signed DAGs"},
		{Name: Checkpoints, Partitioned: true, Delete: true, Holds: "signed Merkle heads"},
		{Name: Keys, Compact: true, Holds: "public keys"},
		{
			Name: AggregatorState, Partitioned: true, Compact: true, MaxMessageBytes: 2 * mib,
			SegmentTime: 10 * time.Minute, MaxCompactionLag: 10 * time.Minute, DeleteRetention: day,
			Holds: "the aggregator's snapshots",
		},
	}
}

// Hook returns the hook topic of an ACS method, e.g. acs.hooks.turn-end for
// steps/turnEnd, acs.hooks.agbom-snapshot for agbom/snapshot and
// acs.hooks.handshake-hello for handshake/hello.
func Hook(method string) string {
	name := strings.TrimPrefix(method, "steps/")
	var b strings.Builder
	b.WriteString(HookPrefix)
	lower := false // the byte before was a lower-case letter or a digit
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c >= 'A' && c <= 'Z':
			if lower {
				b.WriteByte('-')
			}
			b.WriteByte(c + 'a' - 'A')
			lower = false
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			b.WriteByte(c)
			lower = true
		default:
			b.WriteByte('-')
			lower = false
		}
	}
	return b.String()
}
