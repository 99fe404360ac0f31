package window

import (
	"slices"
	"strconv"

	"provstream/internal/jcs"
	"provstream/internal/lineage"
	"provstream/internal/segment"
)

// anomaly is a fact as it is told, without its segment.
type anomaly struct {
	code   lineage.Code
	stepID string
	detail string
}

// toldAnomalies is how many anomalies a summary lists; counts count them all.
const toldAnomalies = 100

// tally counts anomalies by code and keeps the first ones.
type tally struct {
	counts []codeCount // by code
	first  []anomaly
}

type codeCount struct {
	code lineage.Code
	n    int
}

func (t *tally) clone() tally {
	return tally{counts: slices.Clone(t.counts), first: slices.Clone(t.first)}
}

func (t *tally) count(code lineage.Code) {
	i, ok := slices.BinarySearchFunc(t.counts, code, func(c codeCount, code lineage.Code) int { return int(c.code) - int(code) })
	if !ok {
		t.counts = slices.Insert(t.counts, i, codeCount{code: code})
	}
	t.counts[i].n++
}

// addFact adds a fact of the open segment; its strings are made only when it
// is listed.
func (t *tally) addFact(v *view, f *lineage.Fact) {
	t.count(f.Code)
	if len(t.first) < toldAnomalies {
		t.first = append(t.first, anomaly{code: f.Code, stepID: v.order.Seg.Syms.String(v.facts.StepID(f)), detail: f.Detail})
	}
}

// tallyTurn adds the facts on a turn's steps, losers and rejected ones too, and
// on the decisions about them.
func (v *view) tallyTurn(t *tally, a *turnAgg) {
	if len(v.facts.All) == 0 {
		return
	}
	var facts []lineage.Fact
	for _, ref := range a.refs {
		pos := v.order.Pos(ref)
		for k := v.factAt[pos]; k >= 0 && int(k) < len(v.facts.All) && v.facts.All[k].Record == ref; k++ {
			if v.facts.All[k].Code != lineage.MemoryLimit {
				facts = append(facts, v.facts.All[k])
			}
		}
	}
	var telling lineage.Telling
	v.facts.Tell(&telling, facts, func(f *lineage.Fact) { t.addFact(v, f) })
}

// appendFirst appends the listed anomalies, then those of last, as far as the
// list goes.
func (t *tally) appendFirst(b []byte, last []anomaly) []byte {
	b = append(b, '[')
	n := 0
	for _, list := range [][]anomaly{t.first, last} {
		for _, a := range list {
			if n == toldAnomalies {
				break
			}
			if n > 0 {
				b = append(b, ',')
			}
			n++
			b = append(b, `{"code":"`...)
			b = append(b, a.code.String()...)
			b = append(b, `","detail":`...)
			b = jcs.AppendString(b, a.detail)
			b = append(b, `,"step_id":`...)
			b = append(jcs.AppendString(b, a.stepID), '}')
		}
	}
	return append(b, ']')
}

func (t *tally) appendCounts(b []byte) []byte {
	b = append(b, '{')
	for i, c := range t.counts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, c.code.String()...)
		b = append(b, `":`...)
		b = strconv.AppendInt(b, int64(c.n), 10)
	}
	return append(b, '}')
}

func itoa(n int) string { return strconv.Itoa(n) }

// word returns the string of a symbol that many turns have in common.
func (v *view) word(s segment.Sym) string { return v.words.of(v.order.Seg.Syms.Bytes(s)) }

// text returns the string of a symbol of the analysed segment.
func (v *view) text(s segment.Sym) string { return v.order.Seg.Syms.String(s) }
