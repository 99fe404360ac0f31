package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/integration/processes"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafkatest"
)

// TestUpKilled kills `provctl up`, broker and services in one process, again and
// again while agents write to it. Each time it must come back; in the end every
// record that was acknowledged is where it was acknowledged, and the oracle holds.
func TestUpKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: starts processes; not with -short")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	port, err := kafkatest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	u := &up{dir: t.TempDir(), addr: fmt.Sprintf("127.0.0.1:%d", port)}
	u.start(t)
	defer func() { u.kill() }()
	a := &agent{addr: u.addr, acknowledged: make(map[string][32]byte)}
	sent := make(chan error, 1)
	go func() { sent <- a.send(t.Context()) }()
	kills := 0
	for running := true; running; {
		select {
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		case <-time.After(time.Duration(700+kills*300) * time.Millisecond):
			if kills < 8 {
				u.kill()
				u.start(t)
				kills++
			}
		}
	}
	t.Logf("%d kills, %d records acknowledged", kills, len(a.acknowledged))
	if kills < 5 {
		t.Errorf("%d kills only", kills)
	}
	u.settled(t)
	opts := []kgo.Opt{kgo.SeedBrokers(u.addr)}
	for topic := range a.topics {
		err := processes.ReadTopic(t.Context(), opts, topic, func(r *kgo.Record) error {
			at := place(r)
			if want, ok := a.acknowledged[at]; ok && want == sha256.Sum256(r.Value) {
				delete(a.acknowledged, at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for at := range a.acknowledged {
		t.Errorf("%s was acknowledged and is not there", at)
	}
}

func place(r *kgo.Record) string { return fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset) }

// up is a running `provctl up`.
type up struct {
	dir, addr string
	cmd       *exec.Cmd
	stderr    *bytes.Buffer
}

// start returns when it has announced itself.
func (u *up) start(t *testing.T) {
	t.Helper()
	u.cmd = exec.Command(filepath.Join(binDir, "provctl"), "up", "--json", "--data-dir", u.dir, "--listen", u.addr, "--seal-grace=500ms", "--session-idle=8s")
	u.stderr = new(bytes.Buffer)
	u.cmd.Stderr = u.stderr
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var told struct{ Brokers string }
	if err := json.NewDecoder(out).Decode(&told); err != nil {
		_ = u.cmd.Wait()
		t.Fatalf("it does not come back: %v: %s", err, u.stderr)
	}
}

func (u *up) kill() {
	_ = u.cmd.Process.Kill()
	_ = u.cmd.Wait()
}

// settled waits until everything is read, sealed and signed, and the oracle holds.
func (u *up) settled(t *testing.T) {
	t.Helper()
	d := &processes.Deployment{Bin: binDir, Brokers: u.addr}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for {
		out, err := d.Provctl(ctx, "reconcile", "--json", "--drained", "--jwks", filepath.Join(u.dir, "keys", "jwks.json"))
		var report struct{ Open, Nodes int }
		if err == nil {
			err = json.Unmarshal(out, &report)
		}
		if err == nil && report.Open == 0 && report.Nodes > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the oracle: %v\n%.3000s", err, out)
		case <-time.After(time.Second):
		}
	}
}

// agent sends a fleet and remembers what was acknowledged.
type agent struct {
	addr         string
	client       *kgo.Client
	topics       map[string]bool
	acknowledged map[string][32]byte
}

// send sends each record until it is acknowledged: a repetition is a copy.
func (a *agent) send(ctx context.Context) error {
	g, err := generate.New(generate.Config{Seed: 8, Sessions: 60, StartMs: time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	a.topics = make(map[string]bool)
	defer func() {
		if a.client != nil {
			a.client.Close()
		}
	}()
	there, err := a.existing(ctx)
	if err != nil {
		return err
	}
	for r := range g.All() {
		time.Sleep(2 * time.Millisecond) // there is to be time for the kills
		if there.Has(r.Topic) {          // what is no hook of ACS's has no topic here
			if err := a.one(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *agent) existing(ctx context.Context) (kadm.TopicDetails, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(a.addr))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return kadm.NewClient(cl).ListTopics(ctx)
}

func (a *agent) one(ctx context.Context, r fleet.Record) error {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if a.client == nil {
			var err error
			if a.client, err = kgo.NewClient(kgo.SeedBrokers(a.addr), kgo.RecordDeliveryTimeout(3*time.Second)); err != nil {
				return err
			}
		}
		out := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		got, err := a.client.ProduceSync(ctx, out).First()
		if err == nil {
			a.topics[got.Topic], a.acknowledged[place(got)] = true, sha256.Sum256(got.Value)
			return nil
		}
		if ctx.Err() != nil || time.Since(begin) > time.Minute {
			return fmt.Errorf("send to %s: %w", r.Topic, err)
		}
		a.client.Close()
		a.client = nil
	}
}
