package steptest

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"provstream/internal/acs"
)

// Core is what a scenario runs against.
type Core interface {
	Apply(offset int64, s *acs.Step) []Output
	Tick(offset, t int64) []Output
}

// Output is one emission: Topic is turns, sessions or dags.
type Output struct {
	Topic string
	Key   string // run key
	ID    string // ce_id
	Value []byte
}

// Scenario is a parsed scenario file.
type Scenario struct {
	show   map[string]bool
	Config map[string]string // flag → value
	events []event
}

type event struct {
	line   int
	text   string
	step   *acs.Step
	tick   int64
	expect []string // lines without the ">"
}

// Parse reads a scenario file.
func Parse(text string) (*Scenario, error) {
	sc := &Scenario{show: map[string]bool{}, Config: map[string]string{}}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t")
		if j := strings.Index(line, "  #"); j >= 0 {
			line = strings.TrimRight(line[:j], " \t")
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(line, "#"):
		case words[0] == "show":
			for _, w := range words[1:] {
				sc.show[w] = true
			}
		case words[0] == "config":
			for _, w := range words[1:] {
				k, v, _ := strings.Cut(w, "=")
				sc.Config[k] = v
			}
		case words[0] == ">":
			if len(sc.events) == 0 {
				return nil, fmt.Errorf("line %d: an output before any input", i+1)
			}
			e := &sc.events[len(sc.events)-1]
			e.expect = append(e.expect, strings.Join(words[1:], " "))
		case words[0] == "tick":
			t, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			sc.events = append(sc.events, event{line: i + 1, text: line, tick: t})
		default:
			s, err := ParseStep(line, i+1)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			sc.events = append(sc.events, event{line: i + 1, text: line, step: s})
		}
	}
	return sc, nil
}

// Duration returns a flag of the scenario, or the default.
func (sc *Scenario) Duration(name string, otherwise time.Duration) (time.Duration, error) {
	v, ok := sc.Config[name]
	if !ok {
		return otherwise, nil
	}
	return time.ParseDuration(v)
}

// Int returns a flag of the scenario, or the default.
func (sc *Scenario) Int(name string, otherwise int64) (int64, error) {
	v, ok := sc.Config[name]
	if !ok {
		return otherwise, nil
	}
	return strconv.ParseInt(v, 10, 64)
}

// Run feeds a core and returns the differences, each with what came instead.
func (sc *Scenario) Run(core Core) []string {
	var faults []string
	for i, e := range sc.events {
		var outs []Output
		if e.step != nil {
			outs = core.Apply(int64(i), e.step)
		} else {
			outs = core.Tick(int64(i), e.tick)
		}
		var got [][]string
		for _, o := range outs {
			if len(sc.show) == 0 || sc.show[o.Topic] {
				got = append(got, Print(o))
			}
		}
		if !matches(e.expect, got) {
			var b strings.Builder
			fmt.Fprintf(&b, "line %d: %s\nwant:\n", e.line, e.text)
			for _, l := range e.expect {
				fmt.Fprintf(&b, "  > %s\n", l)
			}
			b.WriteString("got:\n")
			for _, o := range got {
				for _, l := range o {
					fmt.Fprintf(&b, "  > %s\n", l)
				}
			}
			faults = append(faults, b.String())
		}
	}
	return faults
}

// matches compares expected lines with printed outputs. Head and node lines
// name what they care for; facts and edges are compared completely ("*" is any
// word), and where an expectation lists nodes it lists all.
func matches(expect []string, got [][]string) bool {
	var want [][]string
	for _, l := range expect {
		switch strings.Fields(l)[0] {
		case "turn", "session", "dag":
			want = append(want, nil)
		}
		if len(want) == 0 {
			return false
		}
		want[len(want)-1] = append(want[len(want)-1], l)
	}
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !matchOne(want[i], got[i]) {
			return false
		}
	}
	return true
}

func matchOne(want, got []string) bool {
	nodes := slices.ContainsFunc(want, func(l string) bool { return strings.HasPrefix(l, "node ") })
	if !nodes {
		got = slices.DeleteFunc(slices.Clone(got), func(l string) bool { return strings.HasPrefix(l, "node ") })
	}
	if len(want) != len(got) {
		return false
	}
	for i, l := range want {
		words, have := strings.Fields(l), strings.Fields(got[i])
		partial := words[0] == "turn" || words[0] == "session" || words[0] == "dag" || words[0] == "node"
		if !partial && !slices.EqualFunc(words, have, func(w, h string) bool { return w == h || w == "*" }) {
			return false
		}
		if len(have) < 2 || len(words) < 2 || words[0] != have[0] || words[1] != have[1] {
			return false
		}
		if !partial {
			continue
		}
		for _, w := range words {
			name, isAbsent := strings.CutSuffix(w, "=absent")
			if isAbsent && slices.ContainsFunc(have, func(h string) bool { return strings.HasPrefix(h, name+"=") }) {
				return false
			}
			if !isAbsent && !slices.Contains(have, w) {
				return false
			}
		}
	}
	return true
}

// Print renders an output as lines, all members.
func Print(o Output) []string {
	var v map[string]any
	if err := json.Unmarshal(o.Value, &v); err != nil {
		return []string{"broken: " + err.Error()}
	}
	switch o.Topic {
	case "turns":
		return append([]string{fmt.Sprintf("turn %v %s", v["turn_id"], members(v, "turn_id"))}, facts(v)...)
	case "sessions":
		return append([]string{fmt.Sprintf("session %v %s", v["session_id"], members(v, "session_id"))}, facts(v)...)
	}
	return printDAG(v)
}

func printDAG(v map[string]any) []string {
	nodes, _ := v["nodes"].([]any)
	edges, _ := v["edges"].([]any)
	lines := []string{fmt.Sprintf("dag %v nodes=%d edges=%d created_at=%s", v["runId"], len(nodes), len(edges), ms(v["createdAt"]))}
	for _, n := range nodes {
		n := n.(map[string]any)
		attributes, _ := n["attributes"].(map[string]any)
		line := fmt.Sprintf("node %v time=%s", n["id"], ms(n["timestamp"]))
		for _, k := range []string{"actor", "modelVersion", "policyDecisionId", "contentRef"} {
			if n[k] != nil {
				line += fmt.Sprintf(" %s=%v", k, n[k])
			}
		}
		lines = append(lines, line+" "+members(attributes, "request_hash"))
	}
	for _, e := range edges {
		e := e.(map[string]any)
		lines = append(lines, fmt.Sprintf("edge %v %v %v", e["from"], e["kind"], e["to"]))
	}
	return lines
}

func facts(v map[string]any) []string {
	var lines []string
	list, _ := v["anomalies"].([]any)
	for _, f := range list {
		f := f.(map[string]any)
		line := fmt.Sprintf("! %v", f["code"])
		for _, k := range []string{"step_id", "detail"} {
			if f[k] == "" {
				line += " -"
			} else {
				line += fmt.Sprintf(" %v", strings.ReplaceAll(f[k].(string), " ", "_"))
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// members prints name=value, objects flattened with a dot.
func members(v map[string]any, skip string) string {
	var out []string
	var walk func(prefix string, v map[string]any)
	walk = func(prefix string, v map[string]any) {
		for k, x := range v {
			name := prefix + k
			switch x := x.(type) {
			case map[string]any:
				walk(name+".", x)
			case []any:
				if k == "anomalies" && len(x) == 0 {
					continue
				}
				if _, fact := x0(x).(map[string]any); k == "anomalies" && fact {
					continue // facts have lines of their own
				}
				out = append(out, name+"="+join(x))
			case string:
				if x == "" {
					x = "-"
				}
				if strings.HasSuffix(k, "ed_at") {
					x = ms(x)
				}
				out = append(out, name+"="+strings.ReplaceAll(x, " ", "_"))
			case nil:
				out = append(out, name+"=null")
			default:
				out = append(out, fmt.Sprintf("%s=%v", name, x))
			}
		}
	}
	walk("", v)
	out = slices.DeleteFunc(out, func(s string) bool { return strings.HasPrefix(s, skip+"=") })
	sort.Strings(out)
	return strings.Join(out, " ")
}

func x0(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func join(list []any) string {
	var out []string
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, strings.ReplaceAll(members(m, ""), " ", ","))
			continue
		}
		out = append(out, fmt.Sprint(x))
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, "+")
}

func ms(v any) string {
	t, err := time.Parse(time.RFC3339, fmt.Sprint(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}
