package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// upAgain starts `up` on a folder and returns its broker's address and what
// stops it.
func upAgain(t *testing.T, dir string) (addr string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var errs bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"up", "--data-dir", dir, "--listen", "127.0.0.1:0", "--seal-grace", "100ms", "--json"}, os.Getenv, w, &errs)
		_ = w.Close()
	}()
	var told struct{ Brokers string }
	if err := json.NewDecoder(r).Decode(&told); err != nil {
		cancel()
		t.Fatalf("up: %v: status %d: %s", err, <-status, errs.String())
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return told.Brokers, func() {
		cancel()
		if s := <-status; s != 0 {
			t.Errorf("up: status %d: %s", s, errs.String())
		}
	}
}

func provctl(t *testing.T, wantStatus int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if s := run(context.Background(), args, os.Getenv, &out, &errs); s != wantStatus {
		t.Fatalf("provctl %s: status %d: %s%s", strings.Join(args, " "), s, out.String(), errs.String())
	}
	return out.String()
}

// verified counts the DAGs on the cluster that verify with the pinned keys.
func verified(t *testing.T, addr, dir string) int {
	t.Helper()
	var out, errs bytes.Buffer
	args := []string{"verify", "--topic", "--brokers", addr, "--jwks", filepath.Join(dir, "keys", jwksFile), "--json"}
	if s := run(context.Background(), args, os.Getenv, &out, &errs); s != 0 {
		if strings.Contains(errs.String(), "nothing to verify") {
			return 0
		}
		t.Fatalf("verify: status %d: %s%s", s, out.String(), errs.String())
	}
	var report struct {
		DAGs int `json:"dags"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return report.DAGs
}

// The pipeline that is kept running signs what comes in, stops cleanly, and goes
// on where it was with the same folder and keys.
func TestUpGoesOnWhereItStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole pipeline")
	}
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "fleet.jsonl")
	provctl(t, 0, "generate", "--sessions", "3", "-o", file)
	want := 0
	for round, salt := range []string{"first", "second"} {
		addr, stop := upAgain(t, dir)
		provctl(t, 0, "replay", file, "--brokers", addr, "--salt", salt, "--shift-to-now", "--create-topics")
		want += 4 // three sessions and a subagent's
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			if n := verified(t, addr, dir); n >= want {
				if n > want {
					t.Errorf("round %d: %d DAGs, want %d", round, n, want)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("round %d: not signed in time", round)
			}
		}
		if tree := provctl(t, 0, "show", "--brokers", addr); !strings.Contains(tree, "signed with key ") {
			t.Errorf("round %d: %s", round, tree)
		} else if fields := strings.Fields(tree); len(fields) > 3 { // run ID tenant TENANT
			name := fields[3] + "/" + fields[1]
			if again := provctl(t, 0, "show", name, "--brokers", addr); again != tree {
				t.Errorf("round %d: %s alone: %s", round, name, again)
			}
		}
		stop()
	}
}
