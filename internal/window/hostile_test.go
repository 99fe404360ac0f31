package window_test

import (
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"provstream/internal/acs"
	"provstream/internal/segment"
	"provstream/internal/window"
)

// The hostile sessions: one producer does its worst, and the partition goes on.
// Each session shares its partition with an ordinary one, whose emissions must
// be what they are alone. Its cost is compared with that of ordinary sessions in
// the same process, in CPU time per kilobyte of weight (what the records weigh in
// memory and in the DAG), so that nothing depends on the machine: what a busy
// machine adds is measured again, and the race detector's own cost is not judged.
const (
	costFactor = 25       // times the cost of ordinary records; a quadratic rule is hundreds of times
	perMs      = 20       // records a millisecond of the log's time
	tickEvery  = 100      // milliseconds
	maxDAG     = 10 << 20 // what prov.runs takes (bytes)
	attempts   = 4        // a quadratic rule is too slow in each of them
)

// hostile is one bad session, or many.
type hostile struct {
	name    string
	records int
	make    func(i int, s *acs.Step) // fills in one record
	config  func(*window.Config)
	long    bool // skipped by -short
	huge    bool // a record that no Kafka value holds: its weight alone bounds its DAG
	turns   int  // turns whose totals the runs go on holding
	factor  float64
	pressed bool // runs seal by pressure, the bystander's among them
}

// seen is what a hostile log gave.
type seen struct {
	cost      float64 // ns a kB of weight
	weight    int64
	longest   time.Duration // of one call
	held      int64         // bytes on the heap after the log
	largest   int
	dags      int
	stats     window.Stats
	bystander []string
}

// The bystander's sessions have the same first digits.
const bystander = "default/11111111-"

// cpuTime is what the process has used: other processes do not show in it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// drive feeds n records with ticks between; every hundredth stands beside a
// record of the bystander.
func drive(cfg window.Config, n int, fill func(i int, s *acs.Step)) *seen {
	out := &seen{}
	emit := func(e window.Emission) {
		if strings.HasPrefix(e.Key, bystander) {
			out.bystander = append(out.bystander, e.ID+" "+string(e.Value))
			return
		}
		if e.Kind == window.Run {
			out.dags++
			out.largest = max(out.largest, len(e.Value))
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := window.NewPartition(cfg)
	var s acs.Step
	offset, tick, own := int64(0), int64(0), 0
	call := func(f func()) {
		start := time.Now()
		f()
		out.longest = max(out.longest, time.Since(start))
		offset++
	}
	spent := cpuTime()
	for i := range n {
		at := int64(i / perMs)
		if at >= tick+tickEvery {
			tick = at
			call(func() { p.Tick(offset, tick, emit) })
			p.Save(offset, 50_000, func(string, []byte) {})
		}
		if i%100 == 0 {
			ordinaryStep(&s, own, at)
			own++
			call(func() { p.Apply(offset, &s, emit) })
		}
		if fill == nil {
			continue
		}
		s.Reset()
		s.Tenant, s.Session, s.AgentID = "default", "22222222-2222-4222-8222-222222222222", "agent"
		s.StepID = stepName(i)
		s.EventTime, s.RecordedAt = at, at
		s.Coordinates = acs.Coordinates{Topic: "acs.hooks.x", Offset: int64(i), Index: -1}
		s.RequestHash = acs.Hash{1, byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}
		fill(i, &s)
		out.weight += segment.Weight(&s)
		call(func() { p.Apply(offset, &s, emit) })
	}
	// Every timer but the last retention: runs seal, and are remembered.
	for _, pass := range []int64{1_000, 10_000, 20_000, 3_700_000, 100_000} {
		tick += pass
		call(func() { p.Tick(offset, tick, emit) })
		p.Save(offset, 50_000, func(string, []byte) {})
		low, _, _ := p.Low(offset)
		p.Pressures(low)
	}
	spent = cpuTime() - spent
	runtime.GC()
	runtime.ReadMemStats(&after)
	out.held = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	out.stats = p.Stats()
	out.cost = float64(spent.Nanoseconds()) / (float64(max(out.weight, 1)) / 1024)
	runtime.KeepAlive(p)
	return out
}

func stepName(i int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", i) }

// ordinaryStep makes record k of the bystander: sessions of 60 steps in turns
// of six.
func ordinaryStep(s *acs.Step, k int, at int64) {
	longRunStep(s, k/60, k%60, 60, at)
	s.Session = fmt.Sprintf("11111111-1111-4111-8111-%012x", k/60)
}

// ordinary measures ordinary sessions of 60 steps, twenty at a time.
func ordinary() float64 {
	best := 0.0
	for range 3 {
		out := drive(window.DefaultConfig(), 60_000, func(i int, s *acs.Step) {
			at := s.RecordedAt
			run := i/1200*20 + i%20
			longRunStep(s, run, i%1200/20, 60, at)
		})
		if best == 0 || out.cost < best {
			best = out.cost
		}
	}
	return best
}

func TestHostile(t *testing.T) {
	normal := ordinary()
	t.Logf("an ordinary record costs %.0f ns a kB of weight", normal)
	alone := map[int][]string{} // the bystander's emissions without company, by the number of records
	for _, h := range hostiles() {
		t.Run(h.name, func(t *testing.T) {
			if h.long && testing.Short() {
				t.Skip("long")
			}
			if only := os.Getenv("HOSTILE"); only != "" && !strings.Contains(h.name, only) {
				t.Skip()
			}
			cfg := window.DefaultConfig()
			if h.config != nil {
				h.config(&cfg)
			}
			out := drive(cfg, h.records, h.make)
			for again := 1; h.dear(out, normal) && again < attempts; again++ {
				t.Logf("%.1f times: measured again", out.cost/normal)
				normal = max(normal, ordinary())
				out = drive(cfg, h.records, h.make)
			}
			t.Logf("%d records, %.1f MB of weight: %.0f ns a kB (%.1f times), longest call %v, %.1f MB held, %d DAGs, the largest %.1f MB",
				h.records, float64(out.weight)/1e6, out.cost, out.cost/normal, out.longest, float64(out.held)/1e6, out.dags, float64(out.largest)/1e6)
			h.judge(t, out, normal)
			if h.pressed {
				return
			}
			want := alone[h.records]
			if want == nil || h.config != nil {
				want = drive(cfg, h.records, nil).bystander
			}
			if h.config == nil {
				alone[h.records] = want
			}
			if !slices.Equal(out.bystander, want) {
				t.Errorf("the bystander's emissions changed: %d, alone %d", len(out.bystander), len(want))
			}
		})
	}
}

// dear reports whether a record costs too many times an ordinary one.
func (h *hostile) dear(out *seen, normal float64) bool {
	return !raceDetector && out.cost > max(h.factor, costFactor)*normal
}

// judge holds what a hostile log gave to the bounds.
func (h *hostile) judge(t *testing.T, out *seen, normal float64) {
	t.Helper()
	if h.dear(out, normal) {
		t.Errorf("a record costs %.0f times an ordinary one, more than %.0f", out.cost/normal, max(h.factor, costFactor))
	}
	// What is kept: the open records, and of sealed runs the hashes, the totals
	// of turns and the runs themselves (docs/rules.md, What is kept).
	bound := int64(24<<20) + 400*int64(out.stats.OpenSteps) + 2<<10*int64(out.stats.Runs) +
		100*int64(out.stats.RememberedIDs) + 1000*int64(h.turns)
	if out.held > bound {
		t.Errorf("%d bytes are held, more than %d", out.held, bound)
	}
	if out.stats.RememberedIDs > out.stats.Runs*window.DefaultConfig().MaxRunIDs {
		t.Errorf("%d hashes are remembered of %d runs", out.stats.RememberedIDs, out.stats.Runs)
	}
	if out.stats.OpenSteps != 0 || out.dags == 0 {
		t.Errorf("%d records are still open, %d DAGs", out.stats.OpenSteps, out.dags)
	}
	if int64(out.largest) > out.weight || out.largest > maxDAG && !h.huge {
		t.Errorf("a DAG of %d bytes, of %d bytes of weight", out.largest, out.weight)
	}
}

func hostiles() []hostile {
	return slices.Concat(hostileRuns(), hostileLineage(), hostileTurns(), hostileOrder(), hostileLists(), hostileGraces())
}

// hostileRuns: many records or many runs.
func hostileRuns() []hostile {
	return []hostile{
		{name: "a session of a million steps", turns: 170_000, records: 1_000_000, long: true, make: func(i int, s *acs.Step) {
			session := s.Session
			longRunStep(s, 1, i, 1_000_000, s.RecordedAt)
			s.Session = session
		}},
		{name: "a session that may remember 10 hashes", turns: 50_000, records: 100_000, config: func(c *window.Config) { c.MaxRunIDs = 10 }, make: func(i int, s *acs.Step) {
			turnStep(s, i%2 == 0, i/2, "")
			s.AddProvenance().ID = fmt.Sprint("p", i)
		}},
		{name: "a partition full of sessions", long: true, records: 100_000, pressed: true, config: func(c *window.Config) { c.MaxOpenSteps = 10_000 }, make: func(i int, s *acs.Step) {
			s.Method, s.Session = acs.MethodUserMessage, fmt.Sprintf("%08x-2222-4222-8222-222222222222", i)
		}},
		{name: "100,000 sessions of two records each", long: true, records: 200_000, make: func(i int, s *acs.Step) {
			s.Method, s.Session = acs.MethodUserMessage, fmt.Sprintf("%08x-2222-4222-8222-222222222222", i/2)
			if i%2 == 1 {
				s.Method = acs.MethodSessionEnd
			}
		}, config: func(c *window.Config) { c.LateRetention = 30 * time.Second }},
	}
}

// hostileLineage: many ids, parents and listed steps.
func hostileLineage() []hostile {
	return []hostile{
		{name: "a million ids in one step", records: 1, huge: true, make: func(i int, s *acs.Step) {
			s.Method = acs.MethodUserMessage
			for k := range 1_000_000 {
				s.AddProvenance().ID = fmt.Sprint("p", k)
			}
		}},
		{name: "as many parents as a value holds", records: 20, make: func(i int, s *acs.Step) {
			s.Method = acs.MethodUserMessage
			p := s.AddProvenance()
			p.ID, p.Origin = fmt.Sprint("p", i), "user_input"
			for k := range 150_000 {
				p.DerivedFrom = append(p.DerivedFrom, fmt.Sprint(k))
			}
		}},
		{name: "everything derived from everything", records: 3000, make: func(i int, s *acs.Step) {
			s.Method = acs.MethodUserMessage
			p := s.AddProvenance()
			p.ID, p.Origin = fmt.Sprint("p", i%1000), "user_input"
			for k := range 1000 {
				p.DerivedFrom = append(p.DerivedFrom, fmt.Sprint("p", k))
			}
		}},
		{name: "a cycle of 100,000 ids in one step", records: 2, make: func(i int, s *acs.Step) {
			s.Method = acs.MethodUserMessage
			for k := range 100_000 {
				p := s.AddProvenance()
				p.ID = fmt.Sprint("p", k)
				p.DerivedFrom = append(p.DerivedFrom, fmt.Sprint("p", (k+1)%100_000))
			}
		}},
		{name: "a cycle of 100,000 ids, a step each", records: 100_000, make: func(i int, s *acs.Step) {
			s.Method = acs.MethodUserMessage
			p := s.AddProvenance()
			p.ID, p.Origin = fmt.Sprint("p", i), "retrieved"
			p.DerivedFrom = append(p.DerivedFrom, fmt.Sprint("p", (i+1)%100_000))
		}},
		{name: "a mint with 30,000 parents, carried 1,000 times", records: 1001, make: func(i int, s *acs.Step) {
			s.Method = acs.MethodUserMessage
			p := s.AddProvenance()
			p.ID, p.Origin = "p", "user_input"
			n := 30_000
			if i > 0 {
				n = 20
			}
			for k := range n {
				p.DerivedFrom = append(p.DerivedFrom, fmt.Sprint("q", k+i))
			}
		}},
		{name: "compactions that list everything", records: 10_000, make: func(i int, s *acs.Step) {
			if i%100 != 99 {
				s.Method = acs.MethodUserMessage
				p := s.AddProvenance()
				p.ID, p.Origin = fmt.Sprint("p", i), "user_input"
				return
			}
			s.Method = acs.MethodPreCompact
			list := &s.EntriesToCompact
			if i%200 == 199 {
				s.Method, list = acs.MethodPostCompact, &s.EntriesCompacted
				s.AddProvenance().ID = fmt.Sprint("p", i)
			}
			s.DeclaredSummary = &acs.DeclaredSummary{HasEntryCount: true}
			for k := range i {
				*list = append(*list, stepName(k))
			}
		}},
		{name: "compactions that list a few steps of many ids", long: true, records: 4000, make: func(i int, s *acs.Step) {
			if i < 4 {
				s.Method = acs.MethodUserMessage
				for k := range 20_000 {
					p := s.AddProvenance()
					p.ID, p.Origin = fmt.Sprint("p", i, ".", k), "user_input"
				}
				return
			}
			s.Method = acs.MethodPostCompact
			s.AddProvenance().ID = fmt.Sprint("q", i)
			for k := range 4 {
				s.EntriesCompacted = append(s.EntriesCompacted, stepName(k))
			}
		}},
	}
}

// hostileTurns: many turns.
func hostileTurns() []hostile {
	return []hostile{
		{name: "100,000 turns, one after the other", long: true, turns: 100_000, records: 200_000, make: func(i int, s *acs.Step) {
			turnStep(s, i%2 == 0, i/2, "")
		}},
		{name: "100,000 turns, open together", turns: 100_000, records: 200_000, long: true, make: func(i int, s *acs.Step) {
			turnStep(s, i < 100_000, i%100_000, "")
		}},
		{name: "100,000 turns that never end", long: true, turns: 100_000, records: 100_000, make: func(i int, s *acs.Step) {
			turnStep(s, true, i, "")
		}},
		{name: "100,000 turns nested in a chain, inner ones end first", long: true, turns: 100_000, records: 200_000, make: func(i int, s *acs.Step) {
			if i < 100_000 {
				turnStep(s, true, i, fmt.Sprint("turn-", i-1))
				return
			}
			turnStep(s, false, 199_999-i, "")
		}},
		{name: "100,000 turns nested in a chain that only the innermost works in", long: true, turns: 100_000, records: 200_000, make: func(i int, s *acs.Step) {
			if i < 100_000 {
				turnStep(s, true, i, fmt.Sprint("turn-", i-1))
				return
			}
			s.Method, s.TurnID = acs.MethodUserMessage, "turn-99999"
		}},
		{name: "10,000 turns in a chain that ended, one goes on", turns: 10_000, records: 100_000, make: func(i int, s *acs.Step) {
			if i < 20_000 {
				turnStep(s, i%2 == 0, i/2, fmt.Sprint("turn-", i/2-1))
				return
			}
			s.Method, s.TurnID = acs.MethodUserMessage, "turn-9999"
		}},
		{name: "turns of two sessions close by turns", turns: 20_000, records: 40_000, make: func(i int, s *acs.Step) {
			s.Session = fmt.Sprintf("2222222%d-2222-4222-8222-222222222222", i%2)
			k := i / 2
			turnStep(s, k%2 == 0, k/2, "")
			if k%2 == 1 {
				s.StepCount = acs.Number{}
			}
		}},
		{name: "turn summaries over a long memory", long: true, turns: 34_000, records: 100_000, make: func(i int, s *acs.Step) {
			switch i % 3 {
			case 0:
				turnStep(s, true, i/3, "")
			case 1:
				s.Method, s.TurnID = acs.MethodUserMessage, fmt.Sprint("turn-", i/3)
				p := s.AddProvenance()
				p.ID, p.Origin = fmt.Sprint("p", i), "user_input"
			case 2:
				turnStep(s, false, i/3, "")
				s.HasSummary = true
				s.AddProvenance().DerivedFrom = []string{fmt.Sprint("p", i-1)}
			}
		}},
	}
}

// hostileOrder: conflicts, answers and arrival.
func hostileOrder() []hostile {
	return []hostile{
		{name: "100,000 decisions to one step", records: 100_000, make: func(i int, s *acs.Step) {
			if i == 0 {
				s.Method, s.TurnID = acs.MethodToolCallRequest, "t"
				return
			}
			s.Type, s.StepID, s.Decision = acs.TypeDecision, stepName(0), "allow"
		}},
		{name: "100,000 error responses to many steps", records: 100_000, make: func(i int, s *acs.Step) {
			if i%2 == 0 {
				s.Method, s.TurnID, s.ID = acs.MethodToolCallRequest, "t", `"`+s.StepID+`"`
				return
			}
			s.Type, s.StepID, s.ID, s.ErrorResponse = acs.TypeDecision, "", `"`+stepName(i-1)+`"`, true
		}},
		{name: "100,000 error responses to one JSON-RPC id", records: 100_000, make: func(i int, s *acs.Step) {
			s.ID = "7"
			if i%2 == 0 {
				s.Method, s.TurnID = acs.MethodToolCallRequest, "t"
				return
			}
			s.Type, s.StepID, s.ErrorResponse = acs.TypeDecision, "", true
		}},
		{name: "conflicts in descending time order", records: 100_000, make: func(i int, s *acs.Step) {
			s.Method, s.TurnID, s.StepID = acs.MethodUserMessage, fmt.Sprint("t", i%7), stepName(i%3)
			s.EventTime = int64(100_000 - i)
		}},
		{name: "arrival out of order", turns: 50_000, records: 100_000, make: func(i int, s *acs.Step) {
			turnStep(s, i%2 == 1, i/2, "")
			s.EventTime = int64(100_000 - i)
		}},
		{name: "arrival at random", long: true, turns: 50_000, records: 100_000, make: func(i int, s *acs.Step) {
			turnStep(s, i%2 == 1, i*7919%50_000, "")
			s.EventTime = rand.New(rand.NewSource(int64(i))).Int63n(100_000)
		}},
	}
}

// hostileLists: many things that a run remembers by name.
func hostileLists() []hostile {
	return []hostile{
		{name: "100,000 agents", records: 100_000, make: func(i int, s *acs.Step) {
			s.Method, s.AgentID = acs.MethodUserMessage, fmt.Sprint("agent-", i)
		}},
		{name: "100,000 subagents, and turns that close", long: true, turns: 50_000, records: 200_000, make: func(i int, s *acs.Step) {
			if i%2 == 0 {
				s.Method, s.SubagentSessionID, s.ParentStepID = acs.MethodSubagentStart, fmt.Sprint("child-", i), stepName(i-1)
				return
			}
			turnStep(s, i%4 == 1, i/4, "")
		}},
		{name: "100,000 skills", records: 100_000, make: func(i int, s *acs.Step) {
			s.Method = acs.MethodSkillRegister
			s.SkillID, s.DigestAlgorithm, s.DigestValue = fmt.Sprint("skill-", i/2), "sha256", "d"
			if i%2 == 1 {
				s.Method = acs.MethodSkillLoad
			}
		}},
		{name: "100,000 calls without results", records: 100_000, make: func(i int, s *acs.Step) {
			s.Method, s.Tool = acs.MethodToolCallRequest, "x"
			if i%2 == 1 {
				s.Method, s.InnerID = "protocols/MCP/tools/call", "1"
			}
		}},
	}
}

// hostileGraces: with graces of 0 each turn is analysed as it closes, not once a
// tick, and so costs as much as its open segment is long, which the weight bounds.
func hostileGraces() []hostile {
	return []hostile{
		{name: "turns at graces of zero", turns: 2000, records: 4000, config: noGraces, make: func(i int, s *acs.Step) {
			turnStep(s, i%2 == 0, i/2, "")
		}},
		{name: "nested turns at graces of zero", factor: 100, turns: 2000, records: 4000, config: noGraces, make: func(i int, s *acs.Step) {
			turnStep(s, i%2 == 0, i/2, fmt.Sprint("turn-", i/2-1))
		}},
		{name: "conflicts at graces of zero", records: 20_000, config: noGraces, make: func(i int, s *acs.Step) {
			s.Method, s.TurnID, s.StepID = acs.MethodUserMessage, fmt.Sprint("t", i%7), stepName(i%3)
			s.EventTime = int64(100_000 - i)
		}},
	}
}

func noGraces(c *window.Config) {
	c.CompleteGrace, c.Grace, c.SealGrace, c.LateGrace = 0, 0, 0, 0
}

// turnStep makes a turnStart or a turnEnd of turn k.
func turnStep(s *acs.Step, start bool, k int, parent string) {
	s.TurnID = fmt.Sprint("turn-", k)
	s.PayloadTurnID = s.TurnID
	if start {
		s.Method, s.PayloadParentTurnID = acs.MethodTurnStart, parent
		return
	}
	s.Method, s.Outcome = acs.MethodTurnEnd, "completed"
	s.StepCount = acs.Number{Set: true}
}
