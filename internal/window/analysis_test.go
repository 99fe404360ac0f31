package window_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"provstream/internal/acs"
	"provstream/internal/reference/steptest"
	"provstream/internal/segment"
	"provstream/internal/window"
)

// paths adds up how partitions analysed their segments.
type paths struct {
	whole, based, kept, unruly int
	crossed                    [segment.Crossings]int
}

func (s *paths) add(p *window.Partition) {
	whole, based, kept, unruly, crossed := p.Paths()
	s.whole, s.based, s.kept, s.unruly = s.whole+whole, s.based+based, s.kept+kept, s.unruly+unruly
	for i, n := range crossed {
		s.crossed[i] += n
	}
}

// play feeds lines to a partition, a tick a second before each "--", and
// returns what it emits.
func play(t *testing.T, p *window.Partition, lines []string) (out []string) {
	t.Helper()
	emit := func(e window.Emission) { out = append(out, e.ID+" "+string(e.Value)) }
	last := int64(0)
	for i, l := range lines {
		if l == "--" {
			last += 100
			p.Tick(int64(i), last, emit)
			continue
		}
		s, err := steptest.ParseStep(l, i)
		if err != nil {
			t.Fatal(err)
		}
		last = max(last, s.RecordedAt)
		p.Apply(int64(i), s, emit)
	}
	p.Tick(int64(len(lines)), last+10_000_000, emit)
	return out
}

// turnLines is a turn with one member, which closes at the tick behind it.
func turnLines(n int, more ...string) []string {
	at := func(k int) string { return strconv.Itoa(1000*n + 10*k) }
	turn := "t" + strconv.Itoa(n)
	l := []string{
		at(0) + " " + turn + "a turnStart payloadturn=" + turn,
		fmt.Sprintf("%s m%d userMessage turn=%s prov=p%d:user_input", at(1), n, turn, n),
	}
	for k, m := range more {
		if !strings.HasPrefix(m, "NOW") {
			m = "NOW " + m
		}
		l = append(l, strings.NewReplacer("TURN", turn, "NOW", at(2+k)).Replace(m))
	}
	return append(l, at(20)+" "+turn+"z turnEnd payloadturn="+turn+" steps="+strconv.Itoa(1+len(more)), "--")
}

// TestWhatCrossesABase: a record that bears on the base is found out, and what is
// emitted is what one pass over all records gives.
func TestWhatCrossesABase(t *testing.T) {
	var met [segment.Crossings]bool
	for _, c := range []struct {
		name   string
		why    segment.Crossing
		early  string // stands in the base, in turn 2
		record string
	}{
		{"a record that stands in the base", segment.CrossedLate, "", "AT1 late userMessage"},
		{"a step_id again", segment.CrossedConflict, "", "NOW m2 toolCallRequest"},
		{"an answer to a step of the base", segment.CrossedDecision, "", "NOW m2 deny"},
		{"the call of a result", segment.CrossedMissed, "r toolCallResult turn=TURN ref=later", "NOW later toolCallRequest turn=t9"},
		{"the step of a decision", segment.CrossedMissed, "later allow", "NOW later userMessage"},
		{"a listed step", segment.CrossedMissed, "c preCompact turn=TURN entries=m1+later", "NOW later userMessage"},
		{"a head that was claimed", segment.CrossedMissed, "m1 allow head=h1|c userMessage turn=TURN chain=h9", "NOW m9 allow head=h9"},
		{"a subagent that had stopped", segment.CrossedMissed, "c subagentStop turn=TURN sub=s", "NOW later subagentStart sub=s"},
		{"a skill that was loaded", segment.CrossedMissed, "c skillLoad turn=TURN skill=k@d", "NOW later skillRegister skill=k@d"},
		{"the id of an error response", segment.CrossedMissed, "- error id=7", "NOW later userMessage id=7"},
		{"a parent", segment.CrossedMint, "c userMessage turn=TURN prov=q:user_input<later", "NOW x userMessage prov=later:system"},
		{"an unskewed carrier", segment.CrossedMint, "NOW/900000 c userMessage turn=TURN prov=q:system", "NOW x userMessage prov=q:system"},
		{"a member of a turn that ended", segment.CrossedTurn, "", "NOW x userMessage turn=t2"},
		{"another turnStart", segment.CrossedTurn, "", "NOW x turnStart payloadturn=t2"},
		{"another turnEnd", segment.CrossedTurn, "", "NOW x turnEnd payloadturn=t2 steps=9"},
		{"a turnStart behind its members", segment.CrossedMissed, "c userMessage turn=t8", "NOW x turnStart payloadturn=t8"},
		{"a nested turn's member", segment.CrossedOuterTurn, "in turnStart payloadturn=t8 payloadparent=t2", "NOW x userMessage turn=t8"},
		{"a result that names a call with an inferred one", segment.CrossedCall, "c toolCallRequest turn=TURN tool=x|r toolCallResult turn=TURN tool=x", "NOW x toolCallResult tool=x ref=c"},
		{"a sessionStart", segment.CrossedSession, "", "NOW x sessionStart"},
		{"a promise of provenance", segment.CrossedPromise, "c userMessage turn=TURN missing=2", "NOW x handshake producer=deterministic"},
		{"a first head", segment.CrossedPromise, "c userMessage turn=TURN chain=h1", "NOW m9 allow head=h1"},
		{"a first error response", segment.CrossedTracking, "", "NOW - error id=7"},
		{"a first result that names no call", segment.CrossedTracking, "c toolCallRequest turn=TURN tool=x", "NOW x toolCallResult tool=x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var early []string
			if c.early != "" {
				early = strings.Split(c.early, "|")
			}
			log := slices.Concat(turnLines(1), turnLines(2, early...))
			for n := 3; n < 9; n++ {
				log = append(log, turnLines(n)...)
			}
			log = append(log, slices.Insert(turnLines(9), 2, strings.NewReplacer("AT1", "1500/9025", "NOW", "9025").Replace(c.record))...)
			log = slices.Concat(log, turnLines(10), turnLines(11))

			cfg := window.DefaultConfig()
			cfg.CompleteGrace, cfg.Grace = 0, 0
			plain, based := window.NewPartition(cfg), window.NewPartition(cfg)
			plain.AnalyseOnBases(1<<30, 1)
			based.AnalyseOnBases(1, 6)
			want, got := play(t, plain, log), play(t, based, log)
			expectLines(t, got, want)
			var seen paths
			seen.add(based)
			if seen.based == 0 || seen.crossed[c.why] == 0 {
				t.Errorf("no crossing %d: %+v", c.why, seen)
			}
			met[c.why] = true
		})
	}
	for why := segment.NotCrossed + 1; why < segment.Crossings; why++ {
		if !met[why] {
			t.Errorf("crossing %d is never met", why)
		}
	}
}

// TestBasesDoNotShow: what is emitted is the same whether segments are analysed
// on bases or always in one pass. It is faster than the reference, and so looks
// at more and longer logs.
func TestBasesDoNotShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := steptest.DrawSettings(t)
		if rapid.Bool().Draw(t, "long settings") {
			settings = steptest.DrawLongSettings(t)
		}
		var log []steptest.Event
		if rapid.Bool().Draw(t, "long runs") {
			log = steptest.DrawLongLog(t, 300)
		} else {
			log = steptest.DrawLog(t, 150)
		}
		cfg, err := configOf(settings)
		if err != nil {
			t.Fatal(err)
		}
		plain, based := window.NewPartition(cfg), partitions(t, nil)(cfg)
		plain.AnalyseOnBases(1<<30, 1)
		for i, e := range log {
			var want, got []window.Emission
			feed(plain, int64(i), e, func(e window.Emission) { want = append(want, e) })
			feed(based, int64(i), e, func(e window.Emission) { got = append(got, e) })
			for k := range max(len(want), len(got)) {
				if k >= len(want) || k >= len(got) || want[k].ID != got[k].ID || string(want[k].Value) != string(got[k].Value) {
					t.Fatalf("event %d (%s): %d emissions, want %d; they differ from %d\n%s", i, describe(e), len(got), len(want), k, printLog(log[:i+1]))
				}
			}
		}
	})
}

// TestTurnsToldOfSeveralOuterTurns: which of them counts depends on the order of
// the turn's records, so there is no base.
func TestTurnsToldOfSeveralOuterTurns(t *testing.T) {
	later := func(n int) []string {
		return slices.Concat(turnLines(n), turnLines(n+1), turnLines(n+2), turnLines(n+3))
	}
	for _, c := range []struct {
		name  string
		lines []string
	}{
		{"by their metadata", slices.Concat(turnLines(1, "x userMessage turn=t9 parent=t1", "y userMessage turn=t9 parent=t8"), later(2))},
		{"by two turnStarts", slices.Concat(turnLines(1, "x turnStart payloadturn=t9", "y turnStart payloadturn=t9 payloadparent=t1"), later(2))},
		{"by turnStart and metadata", slices.Concat(turnLines(1, "y userMessage turn=t9 parent=t8", "x turnStart payloadturn=t9 payloadparent=t1"), later(2))},
		{"by a turnStart behind a seal", slices.Concat(turnLines(1, "x turnStart payloadturn=t9"), later(2),
			[]string{"7000 y turnStart payloadturn=t9 payloadparent=t1", "7001 z userMessage turn=t9"}, later(8))},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := window.DefaultConfig()
			cfg.CompleteGrace, cfg.Grace, cfg.MaxRunWeight = 0, 0, 12_000
			plain, based := window.NewPartition(cfg), window.NewPartition(cfg)
			plain.AnalyseOnBases(1<<30, 1)
			based.AnalyseOnBases(1, 2)
			want := play(t, plain, c.lines)
			expectLines(t, play(t, based, c.lines), want)
			var seen paths
			seen.add(based)
			if seen.unruly == 0 {
				t.Errorf("no turn was found out: %+v", seen)
			}
		})
	}
}

// TestKeptAnalysesAreBounded: thousands of live runs keep no more analyses than
// a partition may hold, and sealed ones none.
func TestKeptAnalysesAreBounded(t *testing.T) {
	const runs, steps = 2000, 40
	cfg := window.DefaultConfig()
	cfg.CompleteGrace, cfg.Grace = 0, 0
	p := window.NewPartition(cfg)
	emit := func(window.Emission) {}
	var s acs.Step
	most := 0
	for k := range steps {
		for run := range runs {
			longRunStep(&s, run, k, steps, int64(k))
			p.Apply(int64(k*runs+run), &s, emit)
		}
		n, size := p.KeptAnalyses()
		if size > 1<<16 {
			t.Fatalf("%d analyses of %d records are kept", n, size)
		}
		most = max(most, n)
	}
	if most < 500 || most == runs {
		t.Errorf("%d analyses were kept", most)
	}
	p.Tick(runs*steps, 1000, emit)
	p.Tick(runs*steps+1, 100_000, emit)
	if n, size := p.KeptAnalyses(); n != 0 || size != 0 || p.Stats().OpenSteps != 0 {
		t.Errorf("%d analyses of %d records are kept, %d records are open", n, size, p.Stats().OpenSteps)
	}
}

func expectLines(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d emissions, want %d", len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("emission %d\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}
