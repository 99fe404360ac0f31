package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"provstream/internal/embedded"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"provctl": func() {
			os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
		},
	})
}

// TestScripts runs testdata/script: one file a command, a session at the
// terminal and what comes out. A script whose name begins with kafka has a
// broker of its own at $BROKERS.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("FLEET", sharedFleet())
			if !strings.HasPrefix(filepath.Base(env.WorkDir), "script-kafka") {
				return nil
			}
			b, err := embedded.Start(context.Background(), embedded.Config{Partitions: 2})
			if err != nil {
				return err
			}
			env.Defer(func() { _ = b.Close() })
			env.Setenv("BROKERS", b.Addr)
			return nil
		},
		Condition: func(cond string) (bool, error) { return cond == "fleet" && sharedFleet() != "", nil },
	})
}

// sharedFleet is the fleet of real runs where it lies beside the repository, ""
// elsewhere.
func sharedFleet() string {
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "fleet", "airline.jsonl.gz"))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// Every command has help with an example.
func TestEveryCommandHasAnExample(t *testing.T) {
	var c cli
	parser, err := newParser(&c)
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		if !strings.Contains(leaf.Detail, "Example:\n\n    provctl ") {
			t.Errorf("%s: no example in its help", leaf.FullPath())
		}
		if leaf.Help == "" || !strings.HasSuffix(leaf.Help, ".") {
			t.Errorf("%s: help %q is no sentence", leaf.FullPath(), leaf.Help)
		}
		for _, f := range leaf.Flags {
			if f.Help == "" {
				t.Errorf("%s --%s: no help", leaf.FullPath(), f.Name)
			}
		}
	}
}
