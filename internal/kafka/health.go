package kafka

import (
	"maps"
	"sync"
	"time"
)

// Health is what a service tells about itself: the metrics listener reads it
// for /healthz, /ready and /status. The zero value is a service that has not
// started. A nil Health takes what it is told and keeps nothing.
type Health struct {
	mu     sync.Mutex
	status Status
}

// Status is a moment of a service.
type Status struct {
	Running     bool      // a loop is alive
	Stopping    bool      // a graceful stop has begun
	Open        int       // partitions with an open task
	Opening     int       // partitions whose task is opening (restoring)
	Commits     int64     // transactions
	Aborts      int64     // transactions, failed ones included
	LastCommit  time.Time // of a transaction
	LastError   string    // that ended a loop
	LastErrorAt time.Time
	CaughtUp    bool // the backlog of the start was worked off
	Partitions  []PartitionStatus
	Notes       map[string]string // what else a service tells people, by name
}

// NotReady says why the service does not do its work now; "" if it does.
func (s Status) NotReady() string {
	switch {
	case s.Stopping:
		return "stopping"
	case !s.Running && s.LastError != "":
		return "starting again after an error"
	case !s.Running:
		return "starting"
	case s.Opening > 0:
		return "restoring partitions"
	case !s.CaughtUp:
		return "catching up with the backlog"
	}
	return ""
}

// Status returns the present state.
func (h *Health) Status() Status {
	if h == nil {
		return Status{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// Works tells that the program does its work: for one that has no loop.
func (h *Health) Works() { h.update(func(s *Status) { s.Running, s.CaughtUp = true, true }) }

// Note tells people something under a name; an empty text takes it back.
func (h *Health) Note(name, text string) {
	h.update(func(s *Status) {
		notes := maps.Clone(s.Notes) // the old map was given out
		if notes == nil {
			notes = make(map[string]string)
		}
		if notes[name] = text; text == "" {
			delete(notes, name)
		}
		s.Notes = notes
	})
}

func (h *Health) update(f func(*Status)) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.status)
}
