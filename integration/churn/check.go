package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"provstream/integration/processes"
)

// quiet is how long the output must stand still until the pipeline counts as
// drained: longer than the longest grace of a run that has nothing more to come.
const quiet = 40 * time.Second

// drain waits until the pipeline has nothing more to do, and stops the services.
func (t *trial) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	t.log("draining")
	if err := t.deployment.Drain(ctx, t.client, t.opts, quiet); err != nil {
		t.report.violation("draining: %v", err)
	}
	t.log("stopping")
	if err := t.deployment.Stop(); err != nil {
		t.report.violation("graceful stop: %v", err)
	}
	return nil
}

// check holds the result against the oracle and against a replay of the log.
func (t *trial) check(ctx context.Context) error {
	r := t.report
	t.log("reconcile")
	out, err := t.deployment.Reconcile(ctx)
	if json.Valid(out) {
		r.Reconcile = out
	}
	if err != nil {
		r.violation("%v", err)
	}
	t.log("outcome")
	outcome, err := processes.ReadOutcome(ctx, t.opts, t.deployment.Prefix)
	if err != nil {
		return err
	}
	r.DAGs = int64(len(outcome.DAGs))
	for _, twice := range outcome.Repeated {
		r.violation("stands twice: %s", twice)
	}
	t.log("replay of prov.steps")
	replay, err := processes.ReplayLog(ctx, t.opts, t.deployment.Prefix, windows())
	if err != nil {
		return err
	}
	r.Steps = replay.Records
	for _, d := range replay.Differences {
		r.violation("replay of the log: %s", d)
	}
	t.log("%d DAGs, %d violations", r.DAGs, len(r.Violations))
	return nil
}

// counters sum the services' counters over their lives: a life's last values are
// added when its counters start again. What happened between the last look and a
// kill is missing.
type counters struct {
	mu     sync.Mutex
	last   map[string]map[string]float64 // by instance
	cancel context.CancelFunc
	done   chan struct{}
	report *report
}

func (t *trial) watchMetrics(ctx context.Context) *counters {
	ctx, cancel := context.WithCancel(ctx)
	c := &counters{last: make(map[string]map[string]float64), cancel: cancel, done: make(chan struct{}), report: t.report}
	go func() {
		defer close(c.done)
		for {
			for _, p := range t.deployment.Processes() {
				c.look(ctx, p)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	return c
}

func (c *counters) stop() {
	c.cancel()
	<-c.done
}

// counted are the counters that the report has.
var counted = []string{"provstream_transactions_total", "provstream_aggregator_restored_records_total", "provstream_restarts_total"}

func (c *counters) look(ctx context.Context, p *processes.Process) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Metrics+"/metrics", nil)
	if err != nil {
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return // down, or frozen
	}
	defer resp.Body.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(p.Service, p.Instance)
	if c.last[key] == nil {
		c.last[key] = make(map[string]float64)
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, text, ok := strings.Cut(lines.Text(), "} ")
		if !ok {
			name, text, _ = strings.Cut(lines.Text(), " ")
		}
		base, labels, _ := strings.Cut(name, "{")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		for _, n := range counted {
			if n != base {
				continue
			}
			delta := value - c.last[key][name]
			if delta < 0 {
				delta = value
			}
			c.last[key][name] = value
			c.add(base, p.Service, labels, delta)
		}
	}
}

func (c *counters) add(base, service, labels string, n float64) {
	switch base {
	case "provstream_transactions_total":
		for _, result := range []string{"committed", "aborted", "failed"} {
			if strings.Contains(labels, strconv.Quote(result)) {
				c.report.Transactions[service+" "+result] += n
			}
		}
	case "provstream_aggregator_restored_records_total":
		c.report.Restored += n
	case "provstream_restarts_total":
		c.report.Restarts += n
	}
}
