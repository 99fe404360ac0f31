package integration

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"provstream/integration/processes"
	"provstream/internal/generate"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// TestRollingRestart restarts three instances of each service, one after the
// other, while a fleet goes on at a steady rate, as an upgrade does: from the end of
// the flow to its beginning. Each stop is quick and loses no transaction, no
// instance is fenced or begins again for an error, the members keep their
// partitions, no partition stands still for long, and the oracle finds nothing
// missing, repeated or wrong.
func TestRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: starts processes; not with -short")
	}
	t.Run("kafka", func(t *testing.T) {
		rolling(t, kafkatest.Real(t, kafkatest.Options{Partitions: 3}))
	})
}

const (
	rollRate = 400 // records a second
	// What they are on a machine that is busy with other things, too; on an idle one
	// stops and returns take a second and a half, and nothing stands still longer.
	longestStop   = 15 * time.Second
	longestReturn = 30 * time.Second
	longestStall  = 30 * time.Second
	// A group's leader that restarts gives the plan anew, once; a look may see one
	// rebalance as two.
	mostRebalances = 6
)

func rolling(t *testing.T, c *kafkatest.Cluster) {
	d := deploy(t, c, soon())
	// The default: a restart within it moves no partition.
	d.Flags[""] = []string{"--session-timeout=15s"}
	// All topics beforehand: a hook topic that appears later is a rebalance of its
	// own.
	file := filepath.Join(d.Dir, "fleet.jsonl")
	provctl(t, d, "generate", "--seed", "30", "--sessions", "20", "-o", file)
	provctl(t, d, "replay", file, "--create-topics", "--shift-to-now")
	for _, s := range processes.Services {
		for i := range 3 {
			if _, err := d.Start(s, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	sent, over := make(chan error, 1), make(chan struct{})
	go func() { sent <- feedUntil(t.Context(), d, over) }()
	for _, x := range d.Processes() {
		awaitReady(t, x)
	}
	w := watchGroups(t, c)
	time.Sleep(3 * time.Second)
	before := w.moves()
	r := rollAll(t, d)
	time.Sleep(2 * time.Second)
	moves, stood := w.moves()-before, w.end()
	close(over)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	for _, x := range d.Processes() {
		r.add(scrape(t, x))
	}
	t.Logf("stops took up to %.1f s, starts up to %.1f s; a partition stood still for up to %.1f s (%s); %d rebalances", r.stop.Seconds(), r.start.Seconds(), stood.longest.Seconds(), stood.where, moves)
	if stood.longest > longestStall {
		t.Errorf("%s stood still for %v", stood.where, stood.longest)
	}
	if moves > mostRebalances {
		t.Errorf("%d rebalances of 9 restarts", moves)
	}
	r.check(t)
	o := finish(t, c, d, 3*time.Second)
	if len(o.DAGs) < 20 {
		t.Errorf("%d DAGs: nothing was going on", len(o.DAGs))
	}
}

// rolled is what the restarts took, and how transactions ended meanwhile.
type rolled struct {
	stop, start time.Duration // the longest
	counts      map[string]float64
}

// rollAll restarts each instance when the one before is ready again.
func rollAll(t *testing.T, d *processes.Deployment) *rolled {
	t.Helper()
	r := &rolled{counts: make(map[string]float64)}
	for _, s := range []string{"signer", "aggregator", "ingest"} {
		for i := range 3 {
			x := d.Get(s, i)
			r.add(scrape(t, x)) // it ends with the process
			began := time.Now()
			if err := x.Stop(); err != nil {
				t.Fatal(err)
			}
			r.stop = max(r.stop, time.Since(began))
			began = time.Now()
			if err := x.Start(); err != nil {
				t.Fatal(err)
			}
			awaitReady(t, x)
			r.start = max(r.start, time.Since(began))
		}
	}
	return r
}

func (r *rolled) add(counts map[string]float64) {
	for k, v := range counts {
		r.counts[k] += v
	}
}

func (r *rolled) check(t *testing.T) {
	t.Helper()
	if r.stop > longestStop || r.start > longestReturn {
		t.Errorf("a stop took %v, a start %v; want %v and %v at most", r.stop, r.start, longestStop, longestReturn)
	}
	for _, k := range slices.Sorted(maps.Keys(r.counts)) {
		v, committed := r.counts[k], r.counts[strings.Replace(k, "aborted", "committed", 1)]
		t.Logf("%s %g", k, v)
		switch {
		case strings.Contains(k, "committed") && v < 50:
			t.Errorf("%s: %g, next to nothing", k, v)
		case strings.Contains(k, "aborted") && v > committed/10:
			t.Errorf("%s: %g beside %g committed", k, v, committed)
		case strings.Contains(k, "fenced"), strings.Contains(k, "failed"), strings.Contains(k, "restarts"):
			if v != 0 {
				t.Errorf("%s: %g", k, v)
			}
		}
	}
}

// feedUntil sends one small fleet after the other, whole ones, until over is
// closed.
func feedUntil(ctx context.Context, d *processes.Deployment, over <-chan struct{}) error {
	for seed := uint64(31); ; seed++ {
		select {
		case <-over:
			return nil
		default:
		}
		if err := d.Feed(ctx, generate.Config{Seed: seed, Sessions: 20}, rollRate, func() {}); err != nil {
			return err
		}
	}
}

// awaitReady waits until the instance is ready.
func awaitReady(t *testing.T, x *processes.Process) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(50 * time.Millisecond) {
		if err := x.Unexpected(); err != nil {
			t.Fatal(err)
		}
		if status, _ := get(t, x, "/ready"); status == http.StatusOK {
			return
		}
	}
	_, page := get(t, x, "/status")
	t.Fatalf("%s-%d is not ready after a minute: %s\n%s", x.Service, x.Instance, page, x.LogTail())
}

func get(t *testing.T, x *processes.Process, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+x.Metrics+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// scrape reads how the transactions of a process ended, and how often it began
// again.
func scrape(t *testing.T, x *processes.Process) map[string]float64 {
	t.Helper()
	status, text := get(t, x, "/metrics")
	if status != http.StatusOK {
		t.Errorf("%s-%d: metrics: %s", x.Service, x.Instance, text)
	}
	counts := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if ok && (strings.HasPrefix(name, "provstream_transactions_total{") || strings.HasPrefix(name, "provstream_restarts_total{")) {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				counts[name+"}"] += v
			}
		}
	}
	return counts
}

// groupWatch looks at the services' groups several times a second: how often
// they rebalance, and how long a partition with records before it does not move.
type groupWatch struct {
	adm  *kadm.Client
	c    *kafkatest.Cluster
	stop context.CancelFunc
	done sync.WaitGroup

	mu        sync.Mutex
	rebalance map[string]bool // group: is in one
	count     int
	at        map[string]int64     // committed, by group, topic and partition
	since     map[string]time.Time // that it stands still with records before it
	stall     stall
}

type stall struct {
	longest time.Duration
	where   string
}

func watchGroups(t *testing.T, c *kafkatest.Cluster) *groupWatch {
	ctx, cancel := context.WithCancel(t.Context())
	w := &groupWatch{adm: kadm.NewClient(c.Client(t)), c: c, stop: cancel, rebalance: map[string]bool{}, at: map[string]int64{}, since: map[string]time.Time{}}
	w.done.Go(func() {
		for ctx.Err() == nil {
			w.look(ctx)
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); w.done.Wait() })
	return w
}

// moves is the number of rebalances so far.
func (w *groupWatch) moves() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

func (w *groupWatch) end() stall {
	w.stop()
	w.done.Wait()
	return w.stall
}

func (w *groupWatch) look(ctx context.Context) {
	var groups []string
	for _, s := range processes.Services {
		groups = append(groups, w.c.Prefix+"provstream-"+s)
	}
	if described, err := w.adm.DescribeGroups(ctx, groups...); err == nil {
		w.mu.Lock()
		for _, g := range described {
			now := g.Err == nil && g.State != "Stable"
			if now && !w.rebalance[g.Group] {
				w.count++
			}
			w.rebalance[g.Group] = now
		}
		w.mu.Unlock()
	}
	// What is committed first, then the ends: what moves between them may count as
	// lag for a moment, which is no stall.
	for i, inputs := range [][]string{nil, {topics.Steps}, {topics.Runs, topics.Coverage}} {
		var names []string
		for _, n := range inputs {
			names = append(names, w.c.Topic(n))
		}
		committed, err := w.adm.FetchOffsets(ctx, groups[i])
		if err != nil || committed.Error() != nil {
			continue
		}
		if i == 0 {
			for topic := range committed {
				names = append(names, topic)
			}
		}
		if len(names) == 0 {
			continue
		}
		ends, err := w.adm.ListCommittedOffsets(ctx, names...)
		if err != nil || ends.Error() != nil {
			continue
		}
		ends.Each(func(e kadm.ListedOffset) {
			o, _ := committed.Lookup(e.Topic, e.Partition)
			w.moved(fmt.Sprintf("%s of %s/%d", groups[i], e.Topic, e.Partition), o.At, e.Offset)
		})
	}
}

func (w *groupWatch) moved(where string, at, end int64) {
	now := time.Now()
	if before, ok := w.at[where]; !ok || before != at || at >= end {
		w.at[where] = at
		delete(w.since, where)
	}
	if at >= end {
		return
	}
	if w.since[where].IsZero() {
		w.since[where] = now
	}
	if d := now.Sub(w.since[where]); d > w.stall.longest {
		w.stall = stall{d, where}
	}
}
