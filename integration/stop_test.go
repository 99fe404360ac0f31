package integration

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/generate"
	"provstream/internal/kafkatest"
)

// A stop waits for the transaction that is under way, and a second signal does not:
// it ends the process at once, whatever the brokers do.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: starts processes; not with -short")
	}
	c := kafkatest.Loopback(t, kafkatest.Options{})
	d := deploy(t, c, soon())
	x, err := d.Start("ingest", 0)
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, x)
	var ends atomic.Int32
	hold := make(chan struct{})
	defer close(hold)
	c.Fake.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		ends.Add(1)
		c.Fake.SleepControl(func() { <-hold })
		return nil, nil, false
	})
	sent := make(chan error, 1)
	go func() { sent <- d.Feed(t.Context(), generate.Config{Seed: 1, Sessions: 1}, 1000, func() {}) }()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ends.Load() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("no transaction ends: %s", x.LogTail())
		}
	}
	if err := x.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if !x.Running() {
		t.Fatalf("it does not wait for the transaction under way: %s", x.LogTail())
	}
	if err := x.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); x.Running(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 2*time.Second {
			t.Fatal("it does not end")
		}
	}
}
