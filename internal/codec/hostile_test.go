package codec

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hostileValues are about a mebibyte each, made to cost as much as possible.
func hostileValues() map[string]string {
	const size = 1<<20 - 2000
	fill := func(item string) string {
		n := size / (len(item) + 1)
		return strings.TrimSuffix(strings.Repeat(item+",", n), ",")
	}
	numbered := func(format string, n int) string {
		var b strings.Builder
		for i := 0; b.Len() < size && i < n; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	hook := func(method, payload string) string {
		return replaced(envelope, "steps/sessionEnd", method, `{"reason":"completed"}`, payload)
	}
	content := func(value string) string {
		return hook("steps/userMessage", `{"content":[{"type":"text","value":`+value+`}]}`)
	}
	const provenance = `"provenance":{"provenance_id":"p","origin":"system","derived_from":`
	return map[string]string{
		"one string":                     content(`"` + strings.Repeat("x", size) + `"`),
		"one string of escapes":          content(`"` + strings.Repeat(`\u0041`, size/6) + `"`),
		"one string of control escapes":  content(`"` + strings.Repeat(`\u0001`, size/6) + `"`),
		"one string of quotes":           content(`"` + strings.Repeat(`\"`, size/2) + `"`),
		"one string of backslashes":      content(`"` + strings.Repeat(`\\`, size/2) + `"`),
		"one string of emoji":            content(`"` + strings.Repeat("😀", size/4) + `"`),
		"one number":                     content(strings.Repeat("9", 300)) + strings.Repeat(" ", size),
		"a long number":                  content("0." + strings.Repeat("1", size)),
		"a huge exponent":                content("1e-" + strings.Repeat("9", size)),
		"many numbers":                   content("[" + fill("1.5e300") + "]"),
		"many numbers that grow":         content("[" + fill("1e20") + "]"),
		"many empty arrays":              content("[" + fill("[]") + "]"),
		"many empty objects":             content("[" + fill("{}") + "]"),
		"many members":                   content("{" + numbered(`"%06d":0`, 1e6) + "}"),
		"many members, backwards":        content("{" + numbered(`"%[1]x":0`, 1e6) + "}"),
		"many members with escapes":      content("{" + numbered(`"\n%d":0`, 1e6) + "}"),
		"long names":                     content("{" + numbered(`"`+strings.Repeat("x", 1000)+`%d":0`, 1e6) + "}"),
		"the same name again":            content("{" + fill(`"a":0`) + "}"),
		"the same name at the end":       content("{" + numbered(`"%x":0`, 1e5) + `,"0":0}`),
		"deep":                           content(strings.Repeat("[", 124) + strings.Repeat(" ", size) + strings.Repeat("]", 124)),
		"too deep":                       strings.Repeat("[", size),
		"too deep in objects":            strings.Repeat(`{"a":`, size/5),
		"deep, out of order":             content(strings.Repeat(`{"b":0,"a":`, 120) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat("}", 120)),
		"deep many times":                content("[" + fill(strings.Repeat("[", 100)+strings.Repeat("]", 100)) + "]"),
		"content of no objects":          hook("steps/userMessage", `{"content":[`+fill("0")+`]}`),
		"content of empty objects":       hook("steps/userMessage", `{"content":[`+fill("{}")+`]}`),
		"content with many faults":       hook("steps/userMessage", `{"content":[`+fill(`{"type":0,"provenance":{"origin":""}}`)+`]}`),
		"good content":                   hook("steps/userMessage", `{"content":[`+fill(`{"type":"text","value":0}`)+`]}`),
		"many parents":                   hook("steps/userMessage", `{"content":[{"type":"text","value":0,`+provenance+`[`+fill(`""`)+`]}}]}`),
		"many parents of no strings":     hook("steps/userMessage", `{"content":[{"type":"text","value":0,`+provenance+`[`+fill(`0`)+`]}}]}`),
		"many Provenance objects":        hook("steps/userMessage", `{"content":[`+fill(`{"type":"text","value":0,"provenance":{"provenance_id":"","origin":"x"}}`)+`]}`),
		"many arguments":                 hook("steps/toolCallRequest", `{"tool":{"name":"x"},"arguments":{`+numbered(`"%x":{"value":0}`, 1e6)+`}}`),
		"many arguments that are none":   hook("steps/toolCallRequest", `{"tool":{"name":"x"},"arguments":{`+numbered(`"%x":0`, 1e6)+`}}`),
		"a long argument that is none":   hook("steps/toolCallRequest", `{"tool":{"name":"x"},"arguments":{"`+strings.Repeat("/", size)+`":0}}`),
		"many entries":                   hook("steps/preCompact", `{"triggered_by":"manual","entries_to_compact":[`+fill(`""`)+`]}`),
		"a large summary":                hook("steps/preCompact", `{"triggered_by":"manual","entries_to_compact":["a"],"pre_compact_provenance_summary":{"entry_count_by_origin":{`+numbered(`"%x":0`, 1e6)+`}}}`),
		"a large summary of no counts":   hook("steps/preCompact", `{"triggered_by":"manual","entries_to_compact":["a"],"pre_compact_provenance_summary":{"entry_count_by_origin":{`+numbered(`"%x":-1`, 1e6)+`}}}`),
		"a summary of numbers that grow": hook("steps/preCompact", `{"triggered_by":"manual","entries_to_compact":["a"],"pre_compact_provenance_summary":{"entry_count_by_origin":{`+numbered(`"%x":1e20`, 1e6)+`}}}`),
		"components of nothing":          hook("agbom/snapshot", `{"components":[`+fill(`{}`)+`]}`),
		"components that lack something": hook("agbom/snapshot", `{"components":[`+fill(`{"id":"","type":"tool"}`)+`]}`),
		"many unknown members":           "{" + numbered(`"%x":0`, 1e6) + "}",
		"a batch of numbers":             "[" + fill("0") + "]",
		"a batch of empty arrays":        "[" + fill("[]") + "]",
		"a batch of pings":               "[" + fill(replaced(envelope, "steps/sessionEnd", "system/ping", `{"reason":"completed"}`, "{}")) + "]",
		"a batch of steps":               "[" + fill(envelope) + "]",
		"a batch of rejected steps":      "[" + fill(replaced(envelope, "completed", "x")) + "]",
		"invalid UTF-8":                  content(`"` + strings.Repeat("\xff", size) + `"`),
		"no JSON":                        strings.Repeat("x", size),
		"no JSON at the end":             "[" + fill("{}") + ",x]",
		"white space":                    strings.Repeat(" ", size),
		"a long method":                  hook("steps/"+strings.Repeat("x", size), `{}`),
		"a long tenant":                  replaced(envelope, `"acs_version"`, `"tenant_id":"`+strings.Repeat("/", size)+`","acs_version"`),
		"a long id":                      replaced(envelope, `"rpc-1"`, `"`+strings.Repeat(`\n`, size/2)+`"`),
		"a long version":                 replaced(envelope, "0.1.0", strings.Repeat("0", size)+".1.0"),
		"many reason codes":              replaced(answer, `"decision"`, `"reason_codes":[`+numbered(`"%d"`, 1e6)+`],"decision"`),
		"the same reason code":           replaced(answer, `"decision"`, `"reason_codes":[`+fill(`""`)+`],"decision"`),
		"reason codes that are none":     replaced(answer, `"decision"`, `"reason_codes":[`+fill(`0`)+`],"decision"`),
		"reason codes that are arrays":   replaced(answer, `"decision"`, `"reason_codes":[`+fill(`[]`)+`],"decision"`),
	}
}

// No input costs more than a small multiple of its size, in memory or time.
func TestHostileInputIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	const (
		maxMultiple = 64
		maxTime     = 10 * time.Second // of what takes a fraction of one, on a busy machine
	)
	emit := func(_, value []byte) {
		if len(value) > 2<<20-64<<10 {
			t.Errorf("a step of %d bytes does not fit prov.steps", len(value))
		}
	}
	for name, value := range hostileValues() {
		for _, read := range []func() *Record{func() *Record { return hookRecord(value) }, func() *Record { return decisionRecord(value) }} {
			rec := read()
			r := newReader(t, Config{ProvenanceRequired: true})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			result := r.Read(rec, testTime, emit)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			multiple := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(value))
			kind := "accepted"
			if result.DeadLetter != nil {
				kind = result.DeadLetter.Kind
			}
			t.Logf("%-32s %-14s %6.1f x, %4d ms", name, kind, multiple, took.Milliseconds())
			if multiple > maxMultiple || took > maxTime {
				t.Errorf("%s: %.1f bytes allocated for each byte of %d, %v", name, multiple, len(value), took)
			}
		}
	}
}
