// Package steptest makes steps for tests: it reads the lines of scenario files
// and generates random sessions.
//
// # Scenario files
//
// A scenario is text: what comes in, and indented under it, marked ">", what
// comes out. Lines that start with # are comments. Times are milliseconds.
//
//	show turns dags            which outputs are compared (turns, sessions, dags; all by default)
//	config grace=5s            a flag of the aggregator
//
//	1000 u1 userMessage turn=t1 prov=p1:user_input
//	1200 u1 allow cites=p1
//	tick 5000
//	> turn t1 closed_by=complete step_count=1
//	>   ! clock_skew u1 -400
//	> dag 1
//	>   node input:1 step_id=u1
//	>   edge input:1 checked-against policy-decision:2
//
// A step is: time (event/recorded_at where they differ), step_id, hook, then
// key=value. Hooks are named without steps/; a name with / or : is a method as
// it stands. A decision names its request_id and verdict; `error` is an error
// response. Further words:
//
//	run=R tenant=T      whose it is (session r, tenant default)
//	agent= name= user= turn= parent= (both of metadata) payloadturn= payloadparent=
//	prov=id:origin[@source][<parent+parent]      an object, repeatable; `prov=:origin` has an empty id
//	missing=N producer=deterministic by=user_message outcome= steps=N calls=N summary
//	tool= capability= exit= ref= entries=a+b entry_count=N depth=N pre=H chain=H
//	sub= parentstep= skill=ID@digest trigger= answer inner=ID
//	cites=p1+p2 codes=a+b code=N head=H evaluator=
//	id=J                the JSON-RPC id; default the step_id in quotes
//	hash=X              another envelope under the same step_id
//	at=T/P/O[/I]        coordinates; default the topic h, partition 0, the line's number
//	rejected=KIND       a rejected envelope
//
// The same line again is a copy: it differs in coordinates only.
package steptest

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"provstream/internal/acs"
)

// skewWindow is the default of --max-clock-skew.
const skewWindow = 300_000

var verdicts = map[string]bool{"allow": true, "deny": true, "modify": true, "ask": true, "defer": true}

// ParseStep reads the line of a step or decision. Its number gives the default
// offset.
func ParseStep(line string, number int) (*acs.Step, error) {
	words := strings.Fields(line)
	if len(words) < 3 {
		return nil, fmt.Errorf("want time, step_id and hook: %q", line)
	}
	s := &acs.Step{Tenant: "default", Session: "r", StepID: words[1], ID: strconv.Quote(words[1])}
	s.Coordinates = acs.Coordinates{Topic: "h", Offset: int64(number), Index: -1}
	event, recorded, both := strings.Cut(words[0], "/")
	var err error
	if s.EventTime, err = strconv.ParseInt(event, 10, 64); err != nil {
		return nil, fmt.Errorf("time of %q: %w", line, err)
	}
	s.RecordedAt = s.EventTime
	if both {
		if s.RecordedAt, err = strconv.ParseInt(recorded, 10, 64); err != nil {
			return nil, fmt.Errorf("recorded_at of %q: %w", line, err)
		}
	}
	kind := words[2]
	identity := s.StepID + "/" + kind
	for _, w := range words[3:] {
		name, value, _ := strings.Cut(w, "=")
		if name == "hash" {
			identity += "/" + value
		}
	}
	s.RequestHash = sha256.Sum256([]byte("request " + identity))
	s.ContentHash = sha256.Sum256([]byte("content " + identity))
	switch {
	case verdicts[kind]:
		s.Type, s.Decision, s.EventTime = acs.TypeDecision, kind, s.RecordedAt
	case kind == "error":
		s.Type, s.ErrorResponse, s.EventTime, s.StepID = acs.TypeDecision, true, s.RecordedAt, ""
	case kind == "decision":
		s.Type, s.EventTime = acs.TypeDecision, s.RecordedAt
	default:
		s.AgentID = "a"
		s.Method = methodOf(kind)
		d := s.EventTime - s.RecordedAt
		s.Skewed = d > skewWindow || d < -skewWindow
	}
	for _, w := range words[3:] {
		name, value, _ := strings.Cut(w, "=")
		if err := setField(s, name, value); err != nil {
			return nil, fmt.Errorf("%w in %q", err, line)
		}
	}
	if s.Rejected != "" {
		s.EventTime, s.Skewed, s.ContentHash, s.ID = s.RecordedAt, false, s.RequestHash, ""
	}
	return s, nil
}

func methodOf(kind string) string {
	switch {
	case kind == "handshake":
		return acs.MethodHandshakeHello
	case strings.ContainsAny(kind, "/:"):
		return kind
	}
	return "steps/" + kind
}

func list(value string) []string {
	if value == "" {
		return nil
	}
	return strings.Split(value, "+")
}

// text maps the words that set one string.
func text(s *acs.Step) map[string]*string {
	return map[string]*string{
		"run": &s.Session, "tenant": &s.Tenant, "agent": &s.AgentID, "name": &s.AgentName, "user": &s.UserID,
		"turn": &s.TurnID, "parent": &s.ParentTurnID, "payloadturn": &s.PayloadTurnID, "payloadparent": &s.PayloadParentTurnID,
		"producer": &s.ProvenanceProducer, "by": &s.TriggeredBy, "outcome": &s.Outcome, "tool": &s.Tool,
		"capability": &s.Capability, "exit": &s.ExitStatus, "ref": &s.RequestIDRef, "pre": &s.PreCompactChainHash,
		"chain": &s.ChainHash, "sub": &s.SubagentSessionID, "parentstep": &s.ParentStepID, "trigger": &s.TriggerStepID,
		"inner": &s.InnerID, "head": &s.DecisionChainHash, "evaluator": &s.Evaluator, "id": &s.ID, "rejected": &s.Rejected,
		"signed": &s.SignatureKeyID,
	}
}

func setField(s *acs.Step, name, value string) error {
	if p := text(s)[name]; p != nil {
		*p = value
		return nil
	}
	numbers := map[string]*acs.Number{"steps": &s.StepCount, "calls": &s.ToolCallCount, "depth": &s.LineageDepthAfter, "code": &s.ErrorCode}
	if p := numbers[name]; p != nil {
		f, err := strconv.ParseFloat(value, 64)
		*p = acs.Number{Set: true, Value: f}
		return err
	}
	var err error
	switch name {
	case "hash":
	case "prov":
		s.Provenance = append(s.Provenance, parseObject(value))
	case "missing":
		s.ProvenanceMissing, err = strconv.Atoi(value)
	case "summary":
		s.HasSummary = true
	case "answer":
		s.Answer = true
	case "entries":
		if s.Method == acs.MethodPostCompact {
			s.EntriesCompacted = list(value)
		} else {
			s.EntriesToCompact = list(value)
		}
	case "entry_count":
		var f float64
		f, err = strconv.ParseFloat(value, 64)
		s.DeclaredSummary = &acs.DeclaredSummary{HasEntryCount: true, EntryCount: f}
	case "skill":
		s.SkillID, s.DigestValue, _ = strings.Cut(value, "@")
		if s.DigestValue != "" {
			s.DigestAlgorithm = "sha256"
		}
	case "cites":
		s.Cited = list(value)
	case "codes":
		s.ReasonCodes = list(value)
	case "at":
		s.Coordinates, err = parseCoordinates(value)
	default:
		err = fmt.Errorf("unknown word %q", name)
	}
	return err
}

func parseObject(value string) acs.Provenance {
	var o acs.Provenance
	value, parents, _ := strings.Cut(value, "<")
	o.DerivedFrom = list(parents)
	value, o.SourceID, _ = strings.Cut(value, "@")
	o.ID, o.Origin, _ = strings.Cut(value, ":")
	return o
}

func parseCoordinates(value string) (c acs.Coordinates, err error) {
	parts := strings.Split(value, "/")
	c.Topic, c.Index = parts[0], -1
	for i, p := range parts[1:] {
		n, e := strconv.ParseInt(p, 10, 64)
		if e != nil {
			err = e
		}
		switch i {
		case 0:
			c.Partition = int32(n)
		case 1:
			c.Offset = n
		case 2:
			c.Index = int32(n)
		}
	}
	return c, err
}
