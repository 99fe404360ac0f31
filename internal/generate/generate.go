// Package generate makes synthetic fleets: the ACS envelopes of agents that
// work through sessions, as records of a fleet file (see package fleet). A fleet
// is a function of its [Config]: no clock, no randomness but the seed's.
//
// A session is written as a story (script.go): a list of events with payload
// trees. Then its declarations are filled in honestly (declare.go): step counts,
// summaries, compaction lists, depths. So a fleet without faults validates and
// gives no anomaly. A fault (faults*.go) changes one session on purpose: before
// the declarations, where it adds or removes what happens, or after them, where
// it lies about it. Each says which anomaly codes and dead-letter kinds it gives.
package generate

import (
	"container/heap"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"

	"provstream/internal/fleet"
)

// Config says which fleet to make.
type Config struct {
	Seed     uint64
	Sessions int // at least one a fault is made; default 24
	// Tenants take turns; "" is an envelope without tenant_id.
	Tenants []string
	// Faults by name (see [Faults]); each changes the sessions of its turn.
	Faults []string
	// FaultSessions is how many sessions carry each fault; default 1.
	FaultSessions int
	// StartMs is the time of the first event; default 2026-01-05T09:00:00Z.
	StartMs int64
	// Concurrent is about how many sessions are open at a time; default 8.
	Concurrent int
}

const (
	defaultSessions = 24
	defaultStartMs  = 1767603600000 // 2026-01-05T09:00:00Z
	// sessionMs is about how long a session lasts.
	sessionMs = 24_000
)

// Generator makes the fleet of one Config.
type Generator struct {
	cfg    Config
	faults []*Fault
	starts []int64
}

// New checks the configuration.
func New(cfg Config) (*Generator, error) {
	if len(cfg.Tenants) == 0 {
		cfg.Tenants = []string{"northwind", "globex", ""}
	}
	if cfg.Sessions <= 0 {
		cfg.Sessions = defaultSessions
	}
	if cfg.FaultSessions <= 0 {
		cfg.FaultSessions = 1
	}
	if cfg.Concurrent <= 0 {
		cfg.Concurrent = 8
	}
	if cfg.StartMs == 0 {
		cfg.StartMs = defaultStartMs
	}
	g := &Generator{cfg: cfg}
	for _, name := range cfg.Faults {
		f := FaultByName(name)
		if f == nil {
			return nil, fmt.Errorf("no fault is called %q", name)
		}
		g.faults = append(g.faults, f)
	}
	g.cfg.Sessions = max(cfg.Sessions, len(g.faults)*cfg.FaultSessions)
	r := rand.New(rand.NewPCG(cfg.Seed, 0x666c656574)) // "fleet"
	at := cfg.StartMs
	for range g.cfg.Sessions {
		g.starts = append(g.starts, at)
		at += r.Int64N(2 * sessionMs / int64(cfg.Concurrent))
	}
	return g, nil
}

// Sessions is the number of top-level sessions; subagents have further ones.
func (g *Generator) Sessions() int { return g.cfg.Sessions }

// fault returns the fault of session i, nil for a clean one. Faults take turns
// over the whole fleet.
func (g *Generator) fault(i int) *Fault {
	n := len(g.faults) * g.cfg.FaultSessions
	if n == 0 {
		return nil
	}
	// Session i carries one where the running share of faults steps up.
	before, after := i*n/g.cfg.Sessions, (i+1)*n/g.cfg.Sessions
	if before == after {
		return nil
	}
	return g.faults[before%len(g.faults)]
}

// All yields the fleet in the order of its Kafka timestamps. Only the sessions
// that are open at a time are in memory. The records are the caller's to keep.
func (g *Generator) All() iter.Seq[fleet.Record] {
	return func(yield func(fleet.Record) bool) {
		var open cursors
		next := 0
		for {
			for next < g.cfg.Sessions && (len(open) == 0 || open[0].records[0].TimeMs >= g.starts[next]) {
				records := g.Session(next)
				heap.Push(&open, &cursor{index: next, records: records})
				next++
			}
			if len(open) == 0 {
				return
			}
			c := open[0]
			if !yield(c.records[0]) {
				return
			}
			c.records = c.records[1:]
			if len(c.records) == 0 {
				heap.Pop(&open)
			} else {
				heap.Fix(&open, 0)
			}
		}
	}
}

// Session returns the records of one session and its subagents, in the order of
// their Kafka timestamps.
func (g *Generator) Session(i int) []fleet.Record {
	s := newSession(&g.cfg, i, g.starts[i], g.fault(i))
	s.tell()
	records := s.records()
	slices.SortStableFunc(records, func(a, b fleet.Record) int {
		switch {
		case a.TimeMs < b.TimeMs:
			return -1
		case a.TimeMs > b.TimeMs:
			return 1
		}
		return 0
	})
	return records
}

// cursor is a session that is being written out.
type cursor struct {
	index   int
	records []fleet.Record
}

// cursors is a heap by (time, session).
type cursors []*cursor

func (c cursors) Len() int { return len(c) }
func (c cursors) Less(i, j int) bool {
	a, b := c[i], c[j]
	if ta, tb := a.records[0].TimeMs, b.records[0].TimeMs; ta != tb {
		return ta < tb
	}
	return a.index < b.index
}
func (c cursors) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *cursors) Push(x any)   { *c = append(*c, x.(*cursor)) }
func (c *cursors) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}
