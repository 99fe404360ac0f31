package generate

import (
	"slices"

	"provstream/internal/acs"
)

// Fault is one thing that goes wrong in a session.
type Fault struct {
	Name  string
	About string
	// Anomalies and DeadLetters are what one session with the fault gives, by
	// code and by kind, under the services' defaults and whatever Needs says.
	Anomalies, DeadLetters map[string]int
	// Needs says what else it takes to show: a flag of a service, or time
	// between its records.
	Needs string

	setup  func(*session) // before the story
	happen func(*session) // changes the story, before its declarations are made
	lie    func(*session) // changes the declarations
}

// codes and kinds keep the table readable.
type codes = map[string]int

// Faults returns the table: what is broken on the wire, what contradicts
// itself, what is late or missing, and what must not disturb anyone.
func Faults() []Fault {
	return slices.Concat(textFaults(), policyFaults(), identityFaults(), declarationFaults(), lineageFaults(), absenceFaults(), lateFaults(), hostileFaults())
}

// FaultByName returns a fault, nil when there is none of that name.
func FaultByName(name string) *Fault {
	for _, f := range Faults() {
		if f.Name == name {
			return &f
		}
	}
	return nil
}

// FaultNames are the names of all faults in the table's order.
func FaultNames() []string {
	var names []string
	for _, f := range Faults() {
		names = append(names, f.Name)
	}
	return names
}

// beforeEnd makes something happen after the last turn and before sessionEnd.
func (s *session) beforeEnd(f func()) {
	n := len(s.events) - 1
	end := s.events[n]
	s.events = s.events[:n]
	s.turn = nil
	f()
	s.pass(40, 900)
	end.at = s.now
	s.events = append(s.events, end)
}

// afterEnd makes something happen ms after sessionEnd.
func (s *session) afterEnd(ms int64, f func()) {
	s.turn = nil
	s.now += ms
	f()
}

// note is a step outside any turn that disturbs nothing: a write to memory.
// parents that are "" are left out.
func (s *session) note(parents ...string) *event {
	p := s.mint("agent_generated", "atlas-large", parents...)
	return s.add(acs.MethodMemoryStore, obj("content", obj("value", sentence(s.rng, 80), "provenance", p),
		"memory_store", obj("name", stores[1], "scope", "tenant"), "operation", "create"), p)
}

// first and last find events of a method; a story that has none is a mistake in
// this package.
func (s *session) first(method string) *event {
	for _, e := range s.events {
		if e.method == method {
			return e
		}
	}
	panic("generate: no " + method + " in the story")
}

func (s *session) last(method string) *event {
	for i := len(s.events) - 1; i >= 0; i-- {
		if s.events[i].method == method {
			return s.events[i]
		}
	}
	panic("generate: no " + method + " in the story")
}

func (s *session) remove(gone *event) {
	s.events = slices.DeleteFunc(s.events, func(e *event) bool { return e == gone })
}

// params is the params object of an envelope tree.
func params(env *object) *object { return env.get("params").(*object) }

// metadata returns a copy of the metadata object, put in its place.
func metadata(env *object) *object {
	meta := params(env).get("metadata").(object).clone()
	params(env).set("metadata", &meta)
	return &meta
}
