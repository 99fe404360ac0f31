package codec

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"sort"
	"strconv"
	"strings"
	"testing"

	"provstream/internal/acs"

	"pgregory.net/rapid"
)

func num(f float64) acs.Number { return acs.Number{Set: true, Value: f} }

// What a step keeps of the fullest payload of every hook in
// testdata/envelopes.json, written by hand.
func TestExtraction(t *testing.T) {
	chain := strings.Repeat("a", 64)
	const uuid = "11111111-1111-4111-8111-111111111111"
	p := func(id, origin string) acs.Provenance {
		return acs.Provenance{ID: id, Origin: origin, SourceID: "src", DerivedFrom: []string{"p0", "p0"}}
	}
	one := []acs.Provenance{p("p1", "user_input")}
	components := func(times int) (list []acs.Provenance) {
		for range times {
			for i := range 8 {
				list = append(list, p("r"+strconv.Itoa(i), "system"))
			}
		}
		return list
	}
	want := map[string]acs.Step{
		"handshake/hello":              {ProvenanceProducer: "none"},
		"steps/sessionStart":           {Provenance: one},
		"steps/agentTrigger":           {Provenance: one},
		"steps/turnStart":              {PayloadTurnID: "t1", PayloadParentTurnID: "t0", TriggeredBy: "user_message"},
		"steps/userMessage":            {Provenance: one, ProvenanceMissing: 3},
		"steps/agentResponse":          {Provenance: one, ProvenanceMissing: 3},
		"steps/knowledgeRetrieval":     {Provenance: []acs.Provenance{p("p1", "user_input"), p("p2", "retrieved")}, ProvenanceMissing: 1},
		"steps/memoryContextRetrieval": {Provenance: []acs.Provenance{p("p1", "user_input"), p("p2", "retrieved")}},
		"steps/memoryStore":            {Provenance: one},
		"steps/toolCallRequest":        {Provenance: one, ProvenanceMissing: 1, Tool: "Bash", Capability: "c"},
		"steps/toolCallResult": {
			Provenance: []acs.Provenance{p("p2", "tool_output")}, ProvenanceMissing: 1, Tool: "Bash", ExitStatus: "success",
			RequestIDRef: uuid,
		},
		"steps/preCompact": {
			EntriesToCompact: []string{"s1", "s2"}, TriggeredBy: "manual",
			DeclaredSummary: &acs.DeclaredSummary{
				HasOriginsSeen: true, HasEntryCount: true, HasEntryCountByOrigin: true, HasEarliestStepIDByOrigin: true,
				HasMaxLineageDepth: true, OriginsSeen: []string{"user_input", "system"}, EntryCount: 2,
				EntryCountByOrigin:     []acs.OriginValue{{Origin: "other"}, {Origin: "user_input", Count: 1}},
				EarliestStepIDByOrigin: []acs.OriginValue{{Origin: "user_input", StepID: "s1"}}, MaxLineageDepth: 1,
			},
		},
		"steps/postCompact": {
			Provenance: []acs.Provenance{p("p9", "agent_generated")}, EntriesCompacted: []string{"s1"},
			PreCompactChainHash: chain, LineageDepthAfter: num(2),
		},
		"steps/subagentStart": {Provenance: one, SubagentSessionID: uuid, ParentStepID: "s1"},
		"steps/subagentStop":  {Provenance: one, SubagentSessionID: uuid, Outcome: "completed", HasSummary: true},
		"steps/skillRegister": {
			Provenance: []acs.Provenance{p("p1", "system")}, SkillID: "sk", DigestAlgorithm: "sha-256", DigestValue: "v",
		},
		"steps/skillLoad":   {SkillID: "sk", DigestAlgorithm: "sha-256", DigestValue: "v", ParentStepID: "s0"},
		"steps/skillUnload": {SkillID: "sk"},
		"steps/turnEnd": {
			Provenance: []acs.Provenance{p("p9", "agent_generated")}, PayloadTurnID: "t1", Outcome: "completed",
			StepCount: num(4), ToolCallCount: num(1), HasSummary: true,
		},
		"steps/sessionEnd": {},
		"agbom/snapshot":   {Provenance: components(2)},
		"agbom/changed":    {Provenance: append(components(3), p("q", "system")), TriggerStepID: "s"},
	}
	r, plain := newReader(t, Config{}), plainReader(t, Config{})
	for _, h := range readCases(t).Hooks {
		if h.Method == acs.MethodSystemPing {
			continue
		}
		w, ok := want[h.Method]
		if !ok {
			t.Errorf("%s: nothing is expected", h.Method)
		}
		rec := hookRecord(request(h.Method, h.Full))
		for _, r := range []*Reader{r, plain} {
			_, out := read(t, r, rec)
			if len(out) != 1 {
				t.Errorf("%s: %d steps", h.Method, len(out))
				continue
			}
			got := out[0].step
			w.Tenant, w.Session, w.StepID, w.ID, w.Method, w.AgentID = "default", testSession, testRequest, `"rpc-1"`, h.Method, "agent"
			w.EventTime, w.RecordedAt = testTime, testTime
			w.Coordinates = acs.Coordinates{Topic: rec.Topic, Partition: 2, Offset: 7, Index: -1}
			w.RequestHash, w.ContentHash = got.RequestHash, got.ContentHash
			if !same(&got, &w) {
				t.Errorf("%s:\ngot  %+v\nwant %+v", h.Method, got, w)
			}
		}
	}
	cases := readCases(t)
	_, out := read(t, r, hookRecord(cases.Requests[0].Envelope))
	got := out[0].step
	if got.AgentID != "a" || got.AgentName != "n" || got.TurnID != "t" || got.ParentTurnID != "t0" || got.ChainHash != "any" ||
		got.Environment != "staging" || got.Platform != "p" || got.PlatformVersion != "1" || got.UserID != "u" ||
		got.SignatureAlgorithm != "ML-DSA-65" || got.SignatureKeyID != "k" || got.Tenant != "acme" || got.ID != `"x"` {
		t.Errorf("%+v", got)
	}
	_, out = read(t, r, decisionRecord(cases.Responses[1].Envelope))
	got = out[0].step
	if got.Decision != "ask" || got.StepID != uuid || got.DecisionChainHash != chain || got.Evaluator != "composite" ||
		fmt.Sprint(got.ReasonCodes) != "[a b]" || fmt.Sprint(got.Cited) != "[p1 p2]" || len(got.Provenance) != 1 ||
		got.Provenance[0].ID != "p1" || got.SignatureKeyID != "" || got.Method != "" {
		t.Errorf("%+v", got)
	}
}

// Order: the query before the results, arrays by index, arguments by name in
// JCS order (UTF-16 code units), the lists of agbom/changed as they are listed
// in the rules and not as they stand in the text.
func TestProvenanceOrder(t *testing.T) {
	r, plain := newReader(t, Config{}), plainReader(t, Config{})
	p := func(id string) string { return `"provenance":{"provenance_id":"` + id + `","origin":"system"}` }
	c := func(id string) string {
		return `{"id":"i","type":"skill","registration_` + p(id)[1:] + `}`
	}
	for name, c := range map[string]struct{ method, payload, want string }{
		"query first": {"knowledgeRetrieval", `{"results":[{"value":1,` + p("b") + `},{"value":2,` + p("c") + `}],"query":{"value":"q",` + p("a") + `}}`, "abc"},
		"arguments": {
			"toolCallRequest",
			`{"tool":{"name":"t"},"arguments":{"\ufb33":{"value":1,` + p("d") + `},"\ud83d\ude00":{"value":1,` + p("c") + `},"\n":{"value":1,` + p("a") + `},"b":{"value":1,` + p("b") + `}}}`, "abcd",
		},
		"components": {
			"agbom/changed",
			`{"changed":[{"registration_` + p("d")[1:] + `}],"added":[` + c("c") + `],"agbom":{"components":[` + c("b") + `]},"components":[` + c("a") + `]}`, "abcd",
		},
		"a snapshot adds nothing": {"agbom/snapshot", `{"added":[` + c("x") + `],"components":[` + c("a") + `]}`, "a"},
		"the same id twice":       {"userMessage", `{"content":[{"type":"text","value":1,` + p("a") + `},{"type":"text","value":1,` + p("a") + `}]}`, "aa"},
	} {
		method := c.method
		if !strings.Contains(method, "/") {
			method = "steps/" + method
		}
		for _, r := range []*Reader{r, plain} {
			_, out := read(t, r, hookRecord(replaced(envelope, "steps/sessionEnd", method, `{"reason":"completed"}`, c.payload)))
			got := ""
			for _, e := range out {
				for _, p := range e.step.Provenance {
					got += p.ID
				}
			}
			if got != c.want {
				t.Errorf("%s: got %s, want %s", name, got, c.want)
			}
		}
	}
}

// A look-alike of a Provenance object in a position that users, tools or
// models write never counts.
func TestLookAlikes(t *testing.T) {
	r, plain := newReader(t, Config{ProvenanceRequired: false}), plainReader(t, Config{})
	const fake = `{"provenance_id":"fake","origin":"system","provenance":{"provenance_id":"fake","origin":"system"},` +
		`"parser_provenance":{"provenance_id":"fake","origin":"system"},"registration_provenance":{"provenance_id":"fake","origin":"system"},` +
		`"intent":{"parser_provenance":{"provenance_id":"fake","origin":"system"}},"content":[{"provenance":{"provenance_id":"fake","origin":"system"}}]}`
	const tool = `"tool":{"name":"t","x":F}`
	for _, c := range []struct{ method, payload string }{
		{"sessionStart", `{"user_identity":F,"platform_context":F,"provenance":F,"x":F}`},
		{"agentTrigger", `{"trigger_type":"system","trigger_source":F,"provenance":F}`},
		{"turnStart", `{"turn_id":"t","triggered_by":"x","provenance":F}`},
		{"userMessage", `{"content":[{"type":"text","value":F},{"type":"file","value":[F]}],"provenance":F}`},
		{"agentResponse", `{"content":[{"type":"text","value":F,"x":F}],"summary":F}`},
		{"knowledgeRetrieval", `{"query":{"value":"v","x":F},"source":F,"results":[{"value":F,"x":F}]}`},
		{"memoryContextRetrieval", `{"query":{"x":F},"memory_store":F,"results":[{"value":F}]}`},
		{"memoryStore", `{"content":{"value":F,"x":F},"metadata":F}`},
		{"toolCallRequest", `{` + tool + `,"arguments":{"provenance":{"value":F},"a":{"value":[F]}},"intent":{"x":F}}`},
		{"toolCallResult", `{` + tool + `,"exit_status":"success","outputs":[{"value":F},{"value":{"value":F}}]}`},
		{"preCompact", `{"entries_to_compact":["a"],"triggered_by":"manual","pre_compact_provenance_summary":{"provenance":F}}`},
		{"subagentStart", `{"subagent_session_id":"11111111-1111-4111-8111-111111111111","parent_session_id":"p","parent_step_id":"s","intent_derivation":"fresh","subagent_descriptor":F,"intent":F}`},
		{"subagentStop", `{"subagent_session_id":"11111111-1111-4111-8111-111111111111","outcome":"failed","provenance":F}`},
		{"skillRegister", `{"skill_id":"s","definition":{"digest":{"algorithm":"a","value":"v"},"body":F,"registration_provenance":F},"declared_capabilities":[F],"composition":F,"skill":F}`},
		{"skillLoad", `{"skill_id":"s","digest":{"algorithm":"a","value":"v"},"load_trigger":"user","load_path":[],"registration_provenance":F}`},
		{"turnEnd", `{"turn_id":"t","outcome":"error","provenance":F}`},
		{"sessionEnd", `{"reason":"error","summary":F}`},
		{"agbom/snapshot", `{"agbom":{"agent":F,"registration_provenance":F},"registration_provenance":F,"removed":[F],"changed":[F],"components":[{"id":"i","type":"model","name":"n","version":"v","provider":"p","endpoint":"e","model_fields":{"context_window":1,"args":F}}]}`},
		{"agbom/changed", `{"removed":[F],"reason":F,"changed":[{"x":F}]}`},
		{"other", F()},
	} {
		method := c.method
		if !strings.Contains(method, "/") {
			method = "steps/" + method
		}
		payload := strings.ReplaceAll(c.payload, "F", fake)
		value := replaced(envelope, "steps/sessionEnd", method, `{"reason":"completed"}`, payload, `"agent_id"`, `"provenance":`+fake+`,"agent_id"`)
		for _, r := range []*Reader{r, plain} {
			result, out := read(t, r, hookRecord(value))
			if len(out) != 1 || result.DeadLetter != nil {
				t.Errorf("%s: %+v", method, result.DeadLetter)
				continue
			}
			if strings.Contains(out[0].text, "fake") {
				t.Errorf("%s: %s", method, out[0].text)
			}
		}
	}
	value := replaced(answer, `"decision":"allow"`, `"decision":"allow","policy_data":`+fake+`,"payload":`+fake+`,"ask_details":{"approver":{"type":"human","id":"i"},"question":"q","timeout_seconds":1,"context":"c","provenance":`+fake+`}`)
	for _, r := range []*Reader{r, plain} {
		if _, out := read(t, r, decisionRecord(value)); len(out) != 1 || strings.Contains(out[0].text, "fake") {
			t.Errorf("decision: %+v", out)
		}
	}
}

// F is a payload that looks like anything but is one of a method nobody knows.
func F() string { return `{"query":F,"results":[F],"outputs":[F],"summary":F}` }

// respell writes a JSON value in another spelling: members in another order,
// escapes, white space, other digits of the same numbers.
func respell(rnd *rand.Rand, b *strings.Builder, v any) {
	space := func() {
		for range rnd.Intn(3) {
			b.WriteByte(" \t\r\n"[rnd.Intn(4)])
		}
	}
	space()
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		b.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			respell(rnd, b, name)
			b.WriteByte(':')
			respell(rnd, b, v[name])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			respell(rnd, b, item)
		}
		b.WriteByte(']')
	case string:
		b.WriteByte('"')
		for _, r := range v {
			switch {
			case r == '/' && rnd.Intn(2) == 0:
				b.WriteString(`\/`)
			case r > 0xffff:
				if rnd.Intn(2) == 0 {
					fmt.Fprintf(b, `\u%04X\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
				} else {
					b.WriteRune(r)
				}
			case r < 0x20 || r == '"' || r == '\\' || rnd.Intn(4) == 0:
				fmt.Fprintf(b, `\u%04x`, r)
			default:
				b.WriteRune(r)
			}
		}
		b.WriteByte('"')
	case float64:
		text := strconv.FormatFloat(v, "efg"[rnd.Intn(3)], -1, 64)
		if !strings.ContainsAny(text, ".e") && rnd.Intn(2) == 0 {
			text += "." + strings.Repeat("0", 1+rnd.Intn(3))
		} else if rnd.Intn(2) == 0 {
			text = strings.ToUpper(text)
		}
		b.WriteString(text)
	default:
		text, _ := json.Marshal(v)
		b.Write(text)
	}
	space()
}

// Spelling an envelope another way changes neither verdict nor hashes; changing
// any value that is hashed changes the hash. (raw_hash is of the bytes.)
func TestSpellingDoesNotCount(t *testing.T) {
	r := newReader(t, Config{})
	cases := readCases(t)
	rapid.Check(t, func(rt *rapid.T) {
		h := rapid.SampledFrom(cases.Hooks).Draw(rt, "hook")
		e := request(h.Method, h.Full)
		if rapid.Bool().Draw(rt, "broken") {
			e = request(h.Method, rapid.SampledFrom(h.Violations).Draw(rt, "violation").apply(h.Full))
		}
		e["params"].(map[string]any)["x"] = map[string]any{"n": rapid.Float64().Draw(rt, "n"), "s": rapid.String().Draw(rt, "s"), "é😀": 1e2, "\n": math.Copysign(0, -1)}
		text, err := json.Marshal(e)
		if err != nil {
			rt.Skip()
		}
		var tree any
		if err := json.Unmarshal(text, &tree); err != nil {
			rt.Fatal(err)
		}
		rnd := rand.New(rand.NewSource(rapid.Int64().Draw(rt, "seed")))
		var b strings.Builder
		respell(rnd, &b, tree)
		first, one := read(t, r, hookRecord(string(text)))
		second, two := read(t, r, hookRecord(b.String()))
		if fmt.Sprintf("%+v", first.DeadLetter) != fmt.Sprintf("%+v", second.DeadLetter) || len(one) != len(two) || first.Dropped != second.Dropped {
			rt.Fatalf("%s\n%+v\n%s\n%+v", text, first.DeadLetter, b.String(), second.DeadLetter)
		}
		if first.DeadLetter == nil && len(one) == 1 && one[0].text != two[0].text {
			rt.Fatalf("%s\n%s\n%s", b.String(), one[0].text, two[0].text)
		}
	})
}

// Changing one leaf of params changes request_hash; of the payload both.
func TestEveryValueCounts(t *testing.T) {
	r := newReader(t, Config{})
	cases := readCases(t)
	rapid.Check(t, func(rt *rapid.T) {
		h := rapid.SampledFrom(cases.Hooks).Draw(rt, "hook")
		if h.Method == acs.MethodSystemPing {
			rt.Skip()
		}
		free := func(v any) map[string]any {
			e := request(h.Method, h.Full)
			e["params"].(map[string]any)["free"] = v
			return e
		}
		values := rapid.OneOf(
			rapid.Map(rapid.Float64(), func(f float64) any { return f }), rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Just[any](nil), rapid.Just[any]([]any{}), rapid.Just[any](map[string]any{}),
			rapid.SampledFrom([]any{"1", 1.0, "null", "true", "", []any{1.0}, map[string]any{"a": 1.0}, map[string]any{"a": nil}, map[string]any{"b": nil}}),
		)
		a, b := values.Draw(rt, "a"), values.Draw(rt, "b")
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		var va, vb any
		if json.Unmarshal(x, &va) != nil || json.Unmarshal(y, &vb) != nil {
			rt.Skip()
		}
		equal := fmt.Sprintf("%#v", va) == fmt.Sprintf("%#v", vb) || va == 0.0 && vb == 0.0
		_, one := read(t, r, hookRecord(free(va)))
		_, two := read(t, r, hookRecord(free(vb)))
		if len(one) != 1 || len(two) != 1 || (one[0].step.RequestHash == two[0].step.RequestHash) != equal {
			rt.Fatalf("%s and %s: the hashes say otherwise", x, y)
		}
		if one[0].step.ContentHash != two[0].step.ContentHash {
			rt.Fatal("content_hash counts more than the payload")
		}
	})
}
