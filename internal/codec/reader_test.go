package codec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"provstream/internal/acs"
)

// envelope is the text of a sessionEnd envelope, in which tests replace parts.
const envelope = `{"jsonrpc":"2.0","id":"rpc-1","method":"steps/sessionEnd","params":{"acs_version":"0.1.0",` +
	`"request_id":"8d0b6b0e-4d6b-4f7a-9d1c-1f1c7f0e2a10","timestamp":"2026-09-19T10:00:00Z",` +
	`"metadata":{"agent_id":"agent","session_id":"5c3f1b8e-9a0d-4c2e-8f4b-2d6a7e9c1b30"},"payload":{"reason":"completed"}}}`

const answer = `{"jsonrpc":"2.0","id":"rpc-1","result":{"type":"final","acs_version":"0.1.0",` +
	`"request_id":"8d0b6b0e-4d6b-4f7a-9d1c-1f1c7f0e2a10","decision":"allow"}}`

func replaced(s string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(s, pairs[i]) {
			panic("not in the envelope: " + pairs[i])
		}
		s = strings.Replace(s, pairs[i], pairs[i+1], 1)
	}
	return s
}

func TestKindsInOrder(t *testing.T) {
	r := newReader(t, Config{MaxValueBytes: 2000})
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct{ value, kind, pointer string }{
		"too long":                        {envelope + strings.Repeat(" ", 2000), KindOversize, ""},
		"too long and broken":             {strings.Repeat("{", 2001), KindOversize, ""},
		"empty":                           {"", KindNotJSON, ""},
		"white space":                     {" \n", KindNotJSON, ""},
		"text":                            {"hello", KindNotJSON, ""},
		"truncated":                       {envelope[:len(envelope)-1], KindNotJSON, ""},
		"trailing":                        {envelope + "{}", KindNotJSON, ""},
		"BOM":                             {"\ufeff" + envelope, KindNotJSON, ""},
		"control character":               {replaced(envelope, "agent\"", "a\tb\""), KindNotJSON, ""},
		"deep":                            {deep(129), KindNotJSON, ""},
		"deep in an object":               {replaced(envelope, `{"reason"`, `{"x":`+deep(126)+`,"reason"`), KindNotJSON, ""},
		"deep and not strict":             {`["` + "\xff" + `",` + deep(128) + `]`, KindNotJSON, ""},
		"not strict, then broken":         {replaced(envelope, `"reason"`, "\"x\":\"\xff\",\"reason\"") + "x", KindNotJSON, ""},
		"a duplicate, then broken":        {`{"a":1,"a":2,}`, KindNotJSON, ""},
		"invalid UTF-8":                   {replaced(envelope, "completed", "\xff"), KindNotStrict, ""},
		"lone surrogate":                  {replaced(envelope, "completed", `\ud800`), KindNotStrict, ""},
		"duplicate name":                  {replaced(envelope, `"payload"`, `"x":{"a":1,"\u0061":2},"payload"`), KindNotStrict, ""},
		"a number beyond a double":        {replaced(envelope, `"reason"`, `"x":1e400,"reason"`), KindNotStrict, ""},
		"not strict before version":       {replaced(envelope, "0.1.0", "1.0.0", "completed", `\udc00`), KindNotStrict, ""},
		"another major":                   {replaced(envelope, "0.1.0", "1.0.0"), KindVersion, "/params/acs_version"},
		"another major before its schema": {replaced(envelope, "0.1.0", "10.0.0", "\"2.0\"", "\"1.0\""), KindVersion, "/params/acs_version"},
		"no semver":                       {replaced(envelope, "0.1.0", "1.0"), KindEnvelope, "/params/acs_version"},
		"null":                            {"null", KindEnvelope, ""},
		"a string":                        {`"x"`, KindEnvelope, ""},
		"a number":                        {"1e2", KindEnvelope, ""},
		"an empty object":                 {"{}", KindEnvelope, ""},
		"an empty batch":                  {" [ ] ", KindEnvelope, ""},
		"an answer on a hook topic":       {answer, KindEnvelope, ""},
		"payload":                         {replaced(envelope, "completed", "bogus"), KindPayload, "/params/payload/reason"},
		"envelope before payload":         {replaced(envelope, "completed", "bogus", `"rpc-1"`, "null"), KindEnvelope, "/id"},
	} {
		result, _ := read(t, r, hookRecord(c.value))
		if d := result.DeadLetter; d == nil || d.Kind != c.kind || d.Pointer != c.pointer || d.Index != "" {
			t.Errorf("%s: got %+v, want %s %q", name, d, c.kind, c.pointer)
		}
	}
	for name, value := range map[string]string{
		"deep enough":        replaced(envelope, `{"reason"`, `{"x":`+deep(125)+`,"reason"`),
		"a huge integer":     replaced(envelope, `{"reason"`, `{"x":123456789012345678901234567890,"reason"`),
		"a tiny number":      replaced(envelope, `{"reason"`, `{"x":1e-30000000,"reason"`),
		"white space":        "\r\n\t " + envelope + " \n",
		"exactly the limit":  envelope + strings.Repeat(" ", 2000-len(envelope)),
		"an origin of later": replaced(envelope, "sessionEnd", "userMessage", `"reason":"completed"`, `"content":[{"type":"text","value":1,"provenance":{"provenance_id":"","origin":"memory"}}]`),
	} {
		wantAccepted(t, r, name, hookRecord(value))
	}
	null := hookRecord(envelope)
	null.Value = nil
	wantDead(t, r, "a null value", null, KindNotJSON, "", "")
	for name, c := range map[string]struct{ value, kind, pointer string }{
		"another major":               {replaced(answer, "0.1.0", "2.0.0"), KindVersion, "/result/acs_version"},
		"a request":                   {envelope, KindEnvelope, ""},
		"not strict":                  {replaced(answer, "final", `\ud800`), KindNotStrict, ""},
		"version is not in params":    {replaced(answer, `"result"`, `"params":{"acs_version":"1.0.0"},"result"`), KindEnvelope, ""},
		"an empty batch of decisions": {"[]", KindEnvelope, ""},
	} {
		result, _ := read(t, r, decisionRecord(c.value))
		if d := result.DeadLetter; d == nil || d.Kind != c.kind || d.Pointer != c.pointer {
			t.Errorf("decision, %s: got %+v, want %s %q", name, d, c.kind, c.pointer)
		}
	}
}

func sha(text string) acs.Hash { return sha256.Sum256([]byte(text)) }

func TestHashes(t *testing.T) {
	r := newReader(t, Config{})
	const params = `{"acs_version":"0.1.0","metadata":{"agent_id":"agent","session_id":"5c3f1b8e-9a0d-4c2e-8f4b-2d6a7e9c1b30"},` +
		`"payload":{"arguments":{"command":{"value":"echo rm -rf /"}},"raw_command":"echo rm -rf /","tool":{"name":"Bash"}},` +
		`"request_id":"8d0b6b0e-4d6b-4f7a-9d1c-1f1c7f0e2a10","timestamp":"2026-09-19T10:00:00Z"}`
	const payload = `{"arguments":{"command":{"value":"echo rm -rf /"}},"raw_command":"echo rm -rf /","tool":{"name":"Bash"}}`
	value := `{ "params": ` + replaced(params, `"echo`, `"\u0065cho`) + `, "method":"steps/toolCallRequest", "id":1.0, "jsonrpc":"2.0"}`
	result, out := read(t, r, hookRecord(value))
	if len(out) != 1 {
		t.Fatalf("%+v %+v", result, result.DeadLetter)
	}
	// The digest of the published vector of ACS §8.1.
	if got := hex.EncodeToString(out[0].step.RequestHash[:]); got != "1f73e15e340da6bc294e18e38557aef0241921fd3985c94266e1b7416c743058" {
		t.Errorf("request_hash %s", got)
	}
	if out[0].step.ContentHash != sha(payload) || result.RawHash != sha(value) || out[0].step.ID != "1" {
		t.Errorf("%+v", out[0].step)
	}
	_, out = read(t, r, decisionRecord(answer))
	want := sha(`{"acs_version":"0.1.0","decision":"allow","request_id":"8d0b6b0e-4d6b-4f7a-9d1c-1f1c7f0e2a10","type":"final"}`)
	if s := out[0].step; s.RequestHash != want || s.ContentHash != want || s.ID != `"rpc-1"` {
		t.Errorf("%+v", s)
	}
	_, out = read(t, r, decisionRecord(`{"error":{"message":"m","code":-32600.0},"id":null,"jsonrpc":"2.0"}`))
	want = sha(`{"code":-32600,"message":"m"}`)
	if s := out[0].step; s.RequestHash != want || s.ContentHash != want || s.ID != "null" || !s.ErrorResponse ||
		s.ErrorCode != (acs.Number{Set: true, Value: -32600}) || s.StepID != "" || s.Decision != "" || s.Type != acs.TypeDecision {
		t.Errorf("%+v", s)
	}
}

func TestTimes(t *testing.T) {
	r := newReader(t, Config{MaxClockSkew: 2 * time.Second})
	for _, c := range []struct {
		timestamp string
		kafka     int64
		event     int64
		recorded  int64
		skewed    bool
	}{
		{"2026-09-19T10:00:00Z", testTime, testTime, testTime, false},
		{"2026-09-19T10:00:00.9999Z", testTime, testTime + 999, testTime, false},
		{"2026-09-19T12:00:02+02:00", testTime, testTime + 2000, testTime, false},
		{"2026-09-19T10:00:02.001Z", testTime, testTime + 2001, testTime, true},
		{"2026-09-19T09:59:57.999Z", testTime, testTime - 2001, testTime, true},
		{"2026-09-19T10:00:00Z", testTime + 5000, testTime, testTime + 1000, false}, // ingest's clock stands at +1000
		{"2026-09-18t23:59:60z", testTime, testTime - 10*3600*1000, testTime, true},
		{"9999-12-31T23:59:60Z", testTime, maxInstant, testTime, true},
		{"0000-01-01T00:00:00+23:59", -1, minInstant, 0, true},
	} {
		rec := hookRecord(replaced(envelope, "2026-09-19T10:00:00Z", c.timestamp))
		rec.Timestamp = c.kafka
		_, out := read(t, r, rec)
		if len(out) != 1 {
			t.Errorf("%s: not accepted", c.timestamp)
			continue
		}
		s := out[0].step
		if s.EventTime != c.event || s.RecordedAt != c.recorded || s.Skewed != c.skewed {
			t.Errorf("%s: event %d, recorded %d, skewed %v; want %+v", c.timestamp, s.EventTime, s.RecordedAt, s.Skewed, c)
		}
	}
	rec := decisionRecord(answer)
	rec.Timestamp = testTime - 1e6
	if _, out := read(t, r, rec); out[0].step.EventTime != testTime-1e6 || out[0].step.RecordedAt != testTime-1e6 || out[0].step.Skewed {
		t.Errorf("a decision has no time of its own: %+v", out[0].step)
	}
}

func TestBatches(t *testing.T) {
	r := newReader(t, Config{})
	bad := replaced(envelope, "completed", "bogus")
	ping := replaced(envelope, "steps/sessionEnd", "system/ping", `"reason":"completed"`, "")
	twice := replaced(envelope, `"reason"`, `"reason":1,"reason"`)
	for name, c := range map[string]struct {
		value          string
		steps, dropped int
		rejected       []int
		dead           *DeadLetter // kind, pointer, index
	}{
		"two good ones":        {`[` + envelope + `,` + envelope + `]`, 2, 0, nil, nil},
		"one good one":         {" [ \n" + envelope + "\t ] ", 1, 0, nil, nil},
		"a ping between":       {`[` + envelope + `,` + ping + `,` + envelope + `]`, 2, 1, nil, nil},
		"one bad one":          {`[` + envelope + `, ` + bad + ` ,` + envelope + `]`, 3, 0, []int{1}, &DeadLetter{Kind: KindPayload, Pointer: "/params/payload/reason", Index: "1"}},
		"several bad ones":     {`[7,` + envelope + `,` + bad + `,[],` + twice + `]`, 3, 0, []int{2, 4}, &DeadLetter{Kind: KindEnvelope, Index: "0,2,3,4"}},
		"not strict speaks":    {`[` + envelope + `,` + twice + `,` + bad + `]`, 3, 0, []int{1, 2}, &DeadLetter{Kind: KindNotStrict, Index: "1,2"}},
		"names of two":         {`[{"a":1},{"a":1}]`, 0, 0, nil, &DeadLetter{Kind: KindEnvelope, Index: "0,1"}},
		"broken behind":        {`[` + envelope + `,` + envelope + `,]`, 0, 0, nil, &DeadLetter{Kind: KindNotJSON}},
		"an unclosed one":      {`[` + envelope, 0, 0, nil, &DeadLetter{Kind: KindNotJSON}},
		"as deep as it may be": {`[` + envelope + `,` + replaced(envelope, `{"reason"`, `{"x":`+strings.Repeat("[", 124)+strings.Repeat("]", 124)+`,"reason"`) + `]`, 2, 0, nil, nil},
		"too deep by one":      {`[` + envelope + `,` + replaced(envelope, `{"reason"`, `{"x":`+strings.Repeat("[", 125)+strings.Repeat("]", 125)+`,"reason"`) + `]`, 0, 0, nil, &DeadLetter{Kind: KindNotJSON}},
	} {
		result, out := read(t, r, hookRecord(c.value))
		if result.Steps != c.steps || result.Dropped != c.dropped {
			t.Errorf("%s: %d steps, %d dropped; want %d, %d", name, result.Steps, result.Dropped, c.steps, c.dropped)
		}
		d := result.DeadLetter
		if (d == nil) != (c.dead == nil) || d != nil && (d.Kind != c.dead.Kind || d.Pointer != c.dead.Pointer || d.Index != c.dead.Index) {
			t.Errorf("%s: got %+v, want %+v", name, d, c.dead)
		}
		var rejected []int
		for _, e := range out {
			if e.step.Coordinates.Index < 0 {
				t.Errorf("%s: a step without index", name)
			}
			if e.step.Rejected != "" {
				rejected = append(rejected, int(e.step.Coordinates.Index))
			}
		}
		if !reflect.DeepEqual(rejected, c.rejected) {
			t.Errorf("%s: rejected steps of %v, want %v", name, rejected, c.rejected)
		}
	}
	_, out := read(t, r, hookRecord(`[1, `+bad+` ]`))
	if len(out) != 1 || out[0].step.RequestHash != sha(bad) {
		t.Errorf("the raw_hash of an element is that of its own bytes: %+v", out)
	}
	// Decisions in a batch share the headers of the record.
	result, out := read(t, r, decisionRecord(`[`+answer+`,`+answer+`]`))
	if result.Steps != 2 || out[1].step.Session != testSession || out[1].step.Coordinates.Index != 1 {
		t.Errorf("%+v %+v", result, out)
	}
}

func TestRejectedSteps(t *testing.T) {
	cfg := Config{UnknownHooksReject: true, ProvenanceRequired: true, TenantTopics: map[string]string{"acs.hooks.owned": "owner"}}
	r := newReader(t, cfg)
	const turn = `"session_id":"5c3f1b8e-9a0d-4c2e-8f4b-2d6a7e9c1b30","turn_id":"t1"`
	withTurn := replaced(envelope, `"session_id":"5c3f1b8e-9a0d-4c2e-8f4b-2d6a7e9c1b30"`, turn)
	type facts struct{ kind, tenant, method, agent, turn string }
	for name, c := range map[string]struct {
		value string
		want  *facts // nil: a dead letter alone
	}{
		"payload":                      {replaced(withTurn, "completed", "x"), &facts{KindPayload, "default", "steps/sessionEnd", "agent", "t1"}},
		"envelope":                     {replaced(withTurn, `"2.0"`, `"2.1"`), &facts{KindEnvelope, "default", "steps/sessionEnd", "agent", "t1"}},
		"version":                      {replaced(withTurn, "0.1.0", "1.1.0"), &facts{KindVersion, "default", "steps/sessionEnd", "agent", "t1"}},
		"unknown method":               {replaced(withTurn, "sessionEnd", "newThing"), &facts{KindUnknownMethod, "default", "steps/newThing", "agent", "t1"}},
		"not strict":                   {replaced(withTurn, "completed", `\ud800`), &facts{KindNotStrict, "default", "steps/sessionEnd", "agent", "t1"}},
		"a named tenant":               {replaced(withTurn, "completed", "x", `"acs_version"`, `"tenant_id":"a/b","acs_version"`), &facts{KindPayload, "a/b", "steps/sessionEnd", "agent", "t1"}},
		"an empty tenant":              {replaced(withTurn, "completed", "x", `"acs_version"`, `"tenant_id":"","acs_version"`), &facts{KindPayload, "default", "steps/sessionEnd", "agent", "t1"}},
		"a null tenant":                {replaced(withTurn, "completed", "x", `"acs_version"`, `"tenant_id":null,"acs_version"`), nil},
		"a broken tenant":              {replaced(withTurn, "completed", "x", `"acs_version"`, `"tenant_id":"\ud800","acs_version"`), nil},
		"no session":                   {replaced(withTurn, "completed", "x", testSession, "nothing"), nil},
		"no request":                   {replaced(withTurn, "completed", "x", testRequest, "nothing"), nil},
		"broken names":                 {replaced(withTurn, "completed", "x", `"agent"`, "\"\xff\"", `"t1"`, "7", `"steps/sessionEnd"`, `"\udc00"`), &facts{KindNotStrict, "default", "", "", ""}},
		"empty names":                  {replaced(withTurn, `"2.0"`, "1", `"agent"`, `""`, `"t1"`, `""`, `"steps/sessionEnd"`, `""`), &facts{KindEnvelope, "default", "", "", ""}},
		"method of no kind":            {replaced(withTurn, "steps/sessionEnd", "tools/call"), &facts{KindEnvelope, "default", "tools/call", "agent", "t1"}},
		"first of two":                 {replaced(withTurn, `"agent"`, `"first","agent_id":"second"`, testSession, testSession+`","session_id":"x`), &facts{KindNotStrict, "default", "steps/sessionEnd", "first", "t1"}},
		"first params":                 {replaced(withTurn, `"params":`, `"params":7,"params":`), nil},
		"an escaped name":              {replaced(withTurn, `"params"`, `"par\u0061ms"`, "completed", "x"), &facts{KindPayload, "default", "steps/sessionEnd", "agent", "t1"}},
		"a long name":                  {replaced(withTurn, "completed", "x", `"agent"`, `"`+strings.Repeat("é", 200)+`"`), &facts{KindPayload, "default", "steps/sessionEnd", acs.Clamp(strings.Repeat("é", 200)), "t1"}},
		"a look-alike":                 {replaced(withTurn, `"params":{`, `"params":{"x":{"session_id":"`+testSession+`"},`, `"metadata"`, `"Metadata"`), nil},
		"not JSON":                     {withTurn + "x", nil},
		"a broken ping":                {replaced(withTurn, "steps/sessionEnd", "system/ping", `"reason":"completed"`, `"echo":7`), &facts{KindPayload, "default", "system/ping", "agent", "t1"}},
		"a broken unicode name before": {replaced(withTurn, `"params":{`, `"params":{"`+"\xff"+`":1,"\ud800":2,`), &facts{KindNotStrict, "default", "steps/sessionEnd", "agent", "t1"}},
	} {
		rec := hookRecord(c.value)
		result, out := read(t, r, rec)
		if result.DeadLetter == nil {
			t.Errorf("%s: no dead letter", name)
			continue
		}
		if c.want == nil {
			if len(out) != 0 {
				t.Errorf("%s: leaves a step: %+v", name, out[0].step)
			}
			continue
		}
		if len(out) != 1 || result.Rejected != 1 {
			t.Errorf("%s: leaves %d steps (%+v)", name, len(out), result.DeadLetter)
			continue
		}
		want := acs.Step{
			Tenant: c.want.tenant, Session: testSession, StepID: testRequest, EventTime: testTime, RecordedAt: testTime,
			Coordinates: acs.Coordinates{Topic: rec.Topic, Partition: 2, Offset: 7, Index: -1},
			RequestHash: sha(c.value), ContentHash: sha(c.value), Rejected: c.want.kind,
			Method: c.want.method, AgentID: c.want.agent, TurnID: c.want.turn,
		}
		if got := out[0].step; result.DeadLetter.Kind != c.want.kind || !same(&got, &want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
	// Of a topic that belongs to a tenant, what is rejected belongs to it too; what names another leaves nothing.
	rec := hookRecord(replaced(envelope, "completed", "x"))
	rec.Topic = "acs.hooks.owned"
	if _, out := read(t, r, rec); len(out) != 1 || out[0].step.Tenant != "owner" {
		t.Errorf("%+v", out)
	}
	rec.Value = []byte(replaced(envelope, "completed", "x", `"acs_version"`, `"tenant_id":"other","acs_version"`))
	if result, out := read(t, r, rec); len(out) != 0 || result.DeadLetter.Kind != KindPayload {
		t.Errorf("%+v", out)
	}
}

func TestRejectedDecisions(t *testing.T) {
	r := newReader(t, Config{})
	for name, c := range map[string]struct {
		value, kind string
		leaves      bool
	}{
		"no decision":    {replaced(answer, "allow", "perhaps"), KindEnvelope, true},
		"no reasoning":   {replaced(answer, "allow", "deny"), KindEnvelope, true},
		"version":        {replaced(answer, "0.1.0", "1.0.0"), KindVersion, true},
		"not strict":     {replaced(answer, `"decision"`, `"decision":"deny","decision"`), KindNotStrict, true},
		"no request id":  {replaced(answer, testRequest, "x"), KindEnvelope, false},
		"a broken error": {`{"jsonrpc":"2.0","id":1,"error":{"code":"x"}}`, KindEnvelope, false},
		"a request":      {envelope, KindEnvelope, false},
	} {
		rec := decisionRecord(c.value)
		result, out := read(t, r, rec)
		if result.DeadLetter == nil || result.DeadLetter.Kind != c.kind || (len(out) == 1) != c.leaves {
			t.Errorf("%s: %+v, %d steps", name, result.DeadLetter, len(out))
			continue
		}
		if !c.leaves {
			continue
		}
		want := acs.Step{
			Type: acs.TypeDecision, Tenant: "default", Session: testSession, StepID: testRequest, EventTime: testTime, RecordedAt: testTime,
			Coordinates: acs.Coordinates{Topic: "acs.decisions", Partition: 2, Offset: 7, Index: -1},
			RequestHash: sha(c.value), ContentHash: sha(c.value), Rejected: c.kind,
		}
		if !same(&out[0].step, &want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, out[0].step, want)
		}
		rec.Key = nil // nobody can tell whose it is
		if _, out := read(t, r, rec); len(out) != 0 {
			t.Errorf("%s: without a session it leaves %+v", name, out)
		}
	}
}

func TestTenants(t *testing.T) {
	const own, shared = "acs.hooks.own", "acs.hooks.shared"
	mapped := newReader(t, Config{TenantTopics: map[string]string{own: "acme"}, DefaultTenant: "none"})
	plain := newReader(t, Config{})
	named := func(tenant string) string {
		text, _ := json.Marshal(tenant)
		return replaced(envelope, `"acs_version"`, `"tenant_id":`+string(text)+`,"acs_version"`)
	}
	long := strings.Repeat("x", 257)
	for _, c := range []struct {
		r            *Reader
		topic, value string
		want         string // "" is tenant_mismatch
	}{
		{mapped, own, envelope, "acme"}, {mapped, own, named("acme"), "acme"}, {mapped, own, named(""), "acme"},
		{mapped, own, named("other"), ""}, {mapped, own, named("ACME"), ""},
		{mapped, shared, envelope, "none"}, {mapped, shared, named("other"), "other"}, {mapped, shared, named(""), "none"},
		{plain, own, envelope, "default"}, {plain, own, named("a b/ü"), "a b/ü"}, {plain, own, named(long), acs.Clamp(long)},
	} {
		rec := hookRecord(c.value)
		rec.Topic = c.topic
		result, out := read(t, c.r, rec)
		if c.want == "" {
			if d := result.DeadLetter; d == nil || d.Kind != KindTenantMismatch || d.Pointer != "/params/tenant_id" || len(out) != 0 {
				t.Errorf("%s %s: %+v", c.topic, c.value, d)
			}
		} else if len(out) != 1 || out[0].step.Tenant != c.want {
			t.Errorf("%s %s: %+v", c.topic, c.value, out)
		}
	}
}

func TestDecisionRoutes(t *testing.T) {
	const topic = "acs.decisions"
	plain := newReader(t, Config{})
	shared := newReader(t, Config{TenantTopics: map[string]string{"acs.hooks.own": "acme"}})
	owned := newReader(t, Config{TenantTopics: map[string]string{topic: "acme"}})
	other := "11111111-1111-4111-8111-111111111111"
	h := func(pairs ...string) (headers []Header) {
		for i := 0; i < len(pairs); i += 2 {
			headers = append(headers, Header{pairs[i], []byte(pairs[i+1])})
		}
		return headers
	}
	for name, c := range map[string]struct {
		r               *Reader
		key             string
		headers         []Header
		tenant, session string // or the kind in tenant
	}{
		"the key":                        {plain, testSession, nil, "default", testSession},
		"the header wins":                {plain, testSession, h(HeaderSession, other), "default", other},
		"the last header":                {plain, "", h(HeaderSession, "x", HeaderSession, other), "default", other},
		"an empty header is none":        {plain, testSession, h(HeaderSession, ""), "default", testSession},
		"a header that is no UUID":       {plain, testSession, h(HeaderSession, "x"), KindUnroutable, ""},
		"a key that is no UUID":          {plain, "agent-7", nil, KindUnroutable, ""},
		"neither":                        {plain, "", nil, KindUnroutable, ""},
		"upper case is another id":       {plain, strings.ToUpper(testSession), nil, "default", strings.ToUpper(testSession)},
		"a tenant header":                {plain, testSession, h(HeaderTenant, "t1"), "t1", testSession},
		"the last tenant header":         {plain, testSession, h(HeaderTenant, "t1", HeaderTenant, "t2"), "t2", testSession},
		"a tenant that is no text":       {plain, testSession, h(HeaderTenant, "\xff"), KindUnroutable, ""},
		"a map, and nothing said":        {shared, testSession, nil, KindUnroutable, ""},
		"a map, and an empty header":     {shared, testSession, h(HeaderTenant, ""), KindUnroutable, ""},
		"a map, and a header":            {shared, testSession, h(HeaderTenant, "t1"), "t1", testSession},
		"the topic's tenant":             {owned, testSession, nil, "acme", testSession},
		"the topic's tenant, named":      {owned, testSession, h(HeaderTenant, "acme"), "acme", testSession},
		"another tenant":                 {owned, testSession, h(HeaderTenant, "x"), KindTenantMismatch, ""},
		"another tenant, and no session": {owned, "", h(HeaderTenant, "x"), KindTenantMismatch, ""},
	} {
		rec := decisionRecord(answer)
		rec.Key, rec.Headers = []byte(c.key), c.headers
		result, out := read(t, c.r, rec)
		switch {
		case c.session == "":
			if d := result.DeadLetter; d == nil || d.Kind != c.tenant || d.Pointer != "" || len(out) != 0 {
				t.Errorf("%s: got %+v, want %s", name, d, c.tenant)
			}
		case len(out) != 1 || out[0].step.Tenant != c.tenant || out[0].step.Session != c.session:
			t.Errorf("%s: %+v %+v", name, result.DeadLetter, out)
		}
	}
}

func TestDropped(t *testing.T) {
	r := newReader(t, Config{TenantTopics: map[string]string{"acs.hooks.system-ping": "acme"}})
	ping := replaced(envelope, "steps/sessionEnd", "system/ping", `"reason":"completed"`, `"echo":"x"`)
	hello := `{"jsonrpc":"2.0","id":1,"result":{"negotiated_version":"0.1.0","methods_evaluated":[],"selected_transport":"http","timeout_config":{"default_ms":1}}}`
	pong := replaced(answer, `"decision"`, `"payload":{"status":"ok"},"decision"`)
	for name, c := range map[string]struct {
		rec     *Record
		dropped bool
	}{
		"ping":                       {hookRecord(ping), true},
		"ping of another tenant":     {hookRecord(replaced(ping, `"acs_version"`, `"tenant_id":"x","acs_version"`)), true},
		"its answer":                 {decisionRecord(pong), true},
		"server hello":               {decisionRecord(hello), true},
		"an answer with no status":   {decisionRecord(replaced(pong, `"ok"`, `""`)), false},
		"an answer with another":     {decisionRecord(replaced(pong, `"ok"`, `7`)), false},
		"an answer that denies":      {decisionRecord(replaced(pong, "allow", `deny","reasoning":"r`)), false},
		"a system method of no name": {hookRecord(replaced(ping, "system/ping", "system/pong")), false},
	} {
		c.rec.Key = nil // nobody asks whose a dropped record is
		if !c.dropped {
			c.rec.Headers = []Header{{HeaderTenant, []byte("acme")}, {HeaderSession, []byte(testSession)}}
		}
		result, out := read(t, r, c.rec)
		if result.DeadLetter != nil || (result.Dropped == 1) != c.dropped || (len(out) == 1) == c.dropped {
			t.Errorf("%s: %+v %+v", name, result, result.DeadLetter)
		}
	}
	bad := hookRecord(replaced(ping, `"x"`, "7"))
	wantDead(t, r, "a ping that breaks its schema", bad, KindPayload, "/params/payload/echo", "type")
}

func TestUnknownMethods(t *testing.T) {
	accept, reject := newReader(t, Config{}), newReader(t, Config{UnknownHooksReject: true})
	for method, rejected := range map[string]bool{
		"steps/newThing": true, "steps/sessionend": true, "steps/sessionEnd/x": true, "steps/ping": true,
		"agbom/other": false, "trace/span": false, "system/other": false, "handshake/bye": false,
		"protocols/MCP/tools/call": false, "protocols/A2A/x": false, "wrapped:mcp-1/tools/list": false, "wrapped:x": false,
	} {
		// A payload that no schema knows, with a look-alike at a position of other hooks.
		value := request(method, map[string]any{"content": []any{map[string]any{"provenance": map[string]any{"provenance_id": "x", "origin": "system"}}}})
		_, out := read(t, accept, hookRecord(value))
		if len(out) != 1 || out[0].step.Method != method || len(out[0].step.Provenance) != 0 || out[0].step.ProvenanceMissing != 0 {
			t.Errorf("%s: %+v", method, out)
		}
		if rejected {
			wantDead(t, reject, method, hookRecord(value), KindUnknownMethod, "/method", "")
		} else {
			wantAccepted(t, reject, method, hookRecord(value))
		}
	}
}

func TestWrappedMessages(t *testing.T) {
	r := newReader(t, Config{})
	for _, c := range []struct {
		payload string
		answer  bool
		inner   string
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`, false, "7"},
		{`{"jsonrpc":"2.0","id":"a\u0062","result":{}}`, true, `"ab"`},
		{`{"id":1.50e1,"error":{}}`, true, "15"},
		{`{"id":null,"result":1}`, true, ""},
		{`{"result":1,"method":null}`, false, ""},
		{`{}`, false, ""},
		{`{"id":{"b":1,"a":[]},"result":null}`, true, `{"a":[],"b":1}`},
		{`{"id":true,"result":null}`, true, "true"},
		{`{"id":"` + strings.Repeat("y", 300) + `"}`, false, `"` + acs.Clamp(strings.Repeat("y", 300)) + `"`},
	} {
		for _, method := range []string{"protocols/MCP/tools/call", "wrapped:mcp-2025/tools/call"} {
			_, out := read(t, r, hookRecord(replaced(envelope, "steps/sessionEnd", method, `{"reason":"completed"}`, c.payload)))
			if len(out) != 1 || out[0].step.Answer != c.answer || out[0].step.InnerID != c.inner {
				t.Errorf("%s %s: %+v", method, c.payload, out)
			}
		}
	}
}

func TestMessagesEchoNothing(t *testing.T) {
	r := newReader(t, Config{ProvenanceRequired: true, UnknownHooksReject: true})
	for _, value := range []string{
		replaced(envelope, "completed", "SECRET"), replaced(envelope, `"completed"`, `"completed","SECRET":1,"SECRET":2`),
		replaced(envelope, "agent\"", "SECRET\xff\""), replaced(envelope, "0.1.0", "7.SECRET.1"), replaced(envelope, testSession, "SECRET"),
		`{"SECRET":`, replaced(envelope, "sessionEnd", "SECRET"), replaced(envelope, `"jsonrpc"`, `"SECRET":1,"jsonrpc"`),
	} {
		result, _ := read(t, r, hookRecord(value))
		if d := result.DeadLetter; d == nil || strings.Contains(fmt.Sprintf("%+v", *d), "SECRET") {
			t.Errorf("%s: %+v", value, d)
		}
	}
}
