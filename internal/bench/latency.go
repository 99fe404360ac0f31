package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/fleet"
	"provstream/internal/load"
	"provstream/internal/topics"
)

// Latency of sessions, in ms: from the moment at which the schedule wanted the
// sessionEnd sent to the moment at which a read_committed reader had the signed
// DAG. The schedule does not wait for anybody, so a stall counts in full
// (coordinated omission).
type Latency struct {
	Rate     float64 `json:"records_per_s"`
	Sessions int     `json:"sessions"`
	Unsigned int     `json:"unsigned"`
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"`
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`
}

// warmUp is how long the load runs before sessions are measured.
const warmUp = 5 * time.Second

// ends are the sessions whose end was scheduled.
type ends struct {
	mu   sync.Mutex
	due  map[string]time.Time
	took []time.Duration
}

func (s *session) latency(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	e := &ends{due: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	failed := make(chan error, 1)
	wg.Go(func() {
		if err := s.listen(ctx, e); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	before, err := s.usage()
	if err != nil {
		return err
	}
	if err := s.play(ctx, e); err != nil {
		return err
	}
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline) && e.waiting() > 0; {
		select {
		case err := <-failed:
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
	after, err := s.usage()
	if err != nil {
		return err
	}
	s.account(before, after, s.result.Records)
	s.result.Latency = e.summary(s.cfg.Rate)
	return s.sizes(ctx)
}

// listen notes when each DAG arrives.
func (s *session) listen(ctx context.Context, e *ends) error {
	cl, err := s.cfg.Flags.Client(kgo.ConsumeTopics(s.cfg.Flags.Topic(topics.DAGs)), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			_, session, _ := strings.Cut(string(r.Key), "/")
			e.arrived(session, now)
		})
	}
	return nil
}

func (e *ends) arrived(session string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if due, ok := e.due[session]; ok {
		delete(e.due, session)
		e.took = append(e.took, now.Sub(due))
	}
}

func (e *ends) waiting() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.due)
}

// play sends the fleet over and over with fresh ids, each record at its moment
// of the schedule and with the times of that moment.
func (s *session) play(ctx context.Context, e *ends) error {
	sender, err := load.NewSender(s.cfg.Flags, load.Options{CreateTopics: true, Compression: s.cfg.Compression})
	if err != nil {
		return err
	}
	defer sender.Close()
	sessionEnd := topics.Hook(acs.MethodSessionEnd)
	start := time.Now().Add(200 * time.Millisecond)
	end := start.Add(warmUp + s.cfg.Duration)
	stop := fmt.Errorf("the schedule is over")
	for pass := 0; ; pass++ {
		err := s.cfg.Source(func(r *fleet.Record) error {
			due := start.Add(time.Duration(float64(s.result.Records) / s.cfg.Rate * float64(time.Second)))
			if due.After(end) {
				return stop
			}
			if wait := time.Until(due); wait > time.Millisecond {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(wait):
				}
			}
			out := fleet.Transform{Salt: fmt.Sprintf("latency/%d", pass), ShiftMs: due.UnixMilli() - r.TimeMs}.Apply(r)
			if out.Topic == sessionEnd && due.After(start.Add(warmUp)) {
				e.mu.Lock()
				e.due[string(out.Key)] = due
				e.mu.Unlock()
			}
			s.result.Records++
			s.result.Bytes += int64(len(out.Value))
			if s.result.Records%1000 == 0 {
				s.cfg.Progress("load: %d records, %d sessions wait for their DAG", s.result.Records, e.waiting())
			}
			return sender.Send(ctx, &out)
		})
		if err == stop {
			break
		}
		if err != nil {
			return err
		}
	}
	s.result.Seconds = time.Since(start).Seconds()
	return sender.Flush(ctx)
}

func (e *ends) summary(rate float64) *Latency {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.Sort(e.took)
	l := &Latency{Rate: rate, Sessions: len(e.took) + len(e.due), Unsigned: len(e.due)}
	at := func(q float64) float64 {
		if len(e.took) == 0 {
			return 0
		}
		return float64(e.took[min(int(q*float64(len(e.took))), len(e.took)-1)].Microseconds()) / 1000
	}
	l.P50, l.P90, l.P99, l.Max = at(.5), at(.9), at(.99), at(1)
	return l
}
