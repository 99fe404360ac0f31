package bench

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// A hundred sessions that took 1 to 100 ms, and two that wait still.
func TestLatencyPercentiles(t *testing.T) {
	now := time.Now()
	e := &ends{due: map[string]time.Time{}}
	for i := 100; i >= 1; i-- {
		e.due["s"] = now
		e.arrived("s", now.Add(time.Duration(i)*time.Millisecond))
	}
	e.arrived("never scheduled", now)
	e.due["a"], e.due["b"] = now, now
	if n := e.waiting(); n != 2 {
		t.Errorf("%d sessions wait, want 2", n)
	}
	want := Latency{Rate: 7, Sessions: 102, Unsigned: 2, P50: 51, P90: 91, P99: 100, Max: 100}
	if got := *e.summary(7); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := *(&ends{}).summary(1); got != (Latency{Rate: 1}) {
		t.Errorf("%+v of no session", got)
	}
}

// What /proc says of this process is what the kernel tells it itself.
func TestProcUsage(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	sum := 0
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; {
		for i := range 1 << 16 {
			sum += i
		}
	}
	got, err := procUsage(os.Getpid())
	if err != nil {
		t.Fatal(err, sum)
	}
	own := ownUsage()
	if d := own.CPU - got.CPU; d < -20*time.Millisecond || d > 200*time.Millisecond {
		t.Errorf("CPU %v, getrusage says %v", got.CPU, own.CPU)
	}
	if got.MaxRSS < 1<<20 || got.MaxRSS > 1<<30 {
		t.Errorf("peak RSS %d", got.MaxRSS)
	}
	grown := make([]byte, 64<<20)
	for i := range grown {
		grown[i] = 1
	}
	if more, err := procUsage(os.Getpid()); err != nil || more.MaxRSS < got.MaxRSS+60<<20 {
		t.Errorf("peak RSS %d after %d and 64 MiB more: %v", more.MaxRSS, got.MaxRSS, err)
	}
	runtime.KeepAlive(grown)
	if own.Mallocs == 0 || own.AllocB == 0 {
		t.Errorf("nothing was allocated: %+v", own)
	}
	if _, err := procUsage(1 << 30); err == nil {
		t.Error("a process that does not exist has usage")
	}
}
