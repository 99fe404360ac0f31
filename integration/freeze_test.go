package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// awake is how long after SIGCONT the first signed DAG may come, the grace of its
// run (2 s) included. Measured on two cores: 4 s, 6 s beside other work, 13 s beside
// much of it. Services that wait for something to time out after they were thrown
// out of their group take 30 s.
const awake = 25 * time.Second

// arrivals are the moments at which signed DAGs became visible.
type arrivals struct {
	mu   sync.Mutex
	last time.Time
}

// watch reads prov.dags as a SIEM does, until the test ends.
func watch(t *testing.T, c *kafkatest.Cluster) *arrivals {
	a := &arrivals{}
	cl := c.Client(t, kgo.ConsumeTopics(c.Topic(topics.DAGs)), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	go func() {
		for {
			fetches := cl.PollFetches(context.Background())
			if errors.Is(fetches.Err0(), kgo.ErrClientClosed) {
				return
			}
			if fetches.NumRecords() > 0 {
				a.mu.Lock()
				a.last = time.Now()
				a.mu.Unlock()
			}
		}
	}()
	return a
}

// after waits for a DAG that comes after a moment, and tells how long after.
func (a *arrivals) after(t *testing.T, moment time.Time, patience time.Duration) time.Duration {
	t.Helper()
	for time.Since(moment) < patience {
		a.mu.Lock()
		last := a.last
		a.mu.Unlock()
		if last.After(moment) {
			return last.Sub(moment)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("no signed DAG within %v", patience)
	return patience
}
