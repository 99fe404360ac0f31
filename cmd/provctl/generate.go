package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"provstream/internal/fleet"
	"provstream/internal/generate"
)

type generateCmd struct {
	fleetFlags
	Output string `help:"Write to FILE instead of stdout." short:"o" placeholder:"FILE" env:"-"`
}

// fleetFlags describe a synthetic fleet; demo and bench have them too.
type fleetFlags struct {
	Seed          uint64   `help:"Seed: the same seed and flags give the same fleet." default:"1"`
	Sessions      int      `help:"Number of sessions; their subagents have sessions of their own." default:"24"`
	Tenants       []string `help:"Tenants, in turn; - sends no tenant_id." default:"northwind,globex,-"`
	Faults        []string `help:"Faults by name, each in a session of its own; all is every one, list prints them." placeholder:"NAME"`
	FaultSessions int      `help:"Number of sessions with each fault." default:"1"`
	Start         string   `help:"Time of the first event, RFC 3339." default:"2026-01-05T09:00:00Z"`
}

func (c *generateCmd) Help() string {
	return example("Envelopes of a fleet of agents at a parcel desk: every hook of ACS 0.1.0 occurs, and what is asked for goes wrong. "+
		"Without faults nothing is wrong. The output is a function of the flags.",
		"provctl generate --seed 7 --sessions 100 > fleet.jsonl",
		"provctl generate --faults list",
		"provctl generate --faults compaction_lineage,payload | provctl replay - --create-topics")
}

func (c *generateCmd) Run(g *globals) error {
	if len(c.Faults) == 1 && c.Faults[0] == "list" {
		return g.listFaults()
	}
	gen, err := c.generator()
	if err != nil {
		return err
	}
	out := g.stdout
	if c.Output != "" {
		f, err := os.Create(c.Output)
		if err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		defer f.Close()
		out = f
	} else if g.json {
		return fmt.Errorf("--json: stdout gets the fleet; name an --output file too")
	}
	w := bufio.NewWriterSize(out, 1<<20)
	var line []byte
	var span fleet.Span
	size := 0
	for r := range gen.All() {
		span.Add(&r)
		size += len(r.Value)
		line = fleet.AppendLine(line[:0], &r)
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("write the fleet: %w", err)
		}
		if g.ctx.Err() != nil {
			return g.ctx.Err()
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the fleet: %w", err)
	}
	if g.json {
		return g.printJSON(map[string]any{
			"records": span.Records, "value_bytes": size, "sessions": gen.Sessions(), "first_ms": span.FirstMs, "last_ms": span.LastMs,
		})
	}
	return nil
}

// generator turns the flags into a generator; every fault of the flags is told.
func (f *fleetFlags) generator() (*generate.Generator, error) {
	start, err := time.Parse(time.RFC3339, f.Start)
	if err != nil {
		return nil, fmt.Errorf("--start: %q is no RFC 3339 time", f.Start)
	}
	if f.Sessions < 1 {
		return nil, fmt.Errorf("--sessions: %d is less than 1", f.Sessions)
	}
	names := f.Faults
	if len(names) == 1 && names[0] == "all" {
		names = generate.FaultNames()
	}
	tenants := slices.Clone(f.Tenants)
	for i, t := range tenants {
		if t == "-" {
			tenants[i] = ""
		}
	}
	gen, err := generate.New(generate.Config{
		Seed: f.Seed, Sessions: f.Sessions, Tenants: tenants, Faults: names, FaultSessions: f.FaultSessions, StartMs: start.UnixMilli(),
	})
	if err != nil {
		return nil, fmt.Errorf("--faults: %w; `provctl generate --faults list` prints the names", err)
	}
	return gen, nil
}

func (g *globals) listFaults() error {
	type row struct {
		Name        string         `json:"name"`
		About       string         `json:"about"`
		Anomalies   map[string]int `json:"anomalies,omitempty"`
		DeadLetters map[string]int `json:"dead_letters,omitempty"`
		Needs       string         `json:"needs,omitempty"`
	}
	var rows []row
	for _, f := range generate.Faults() {
		rows = append(rows, row{f.Name, f.About, f.Anomalies, f.DeadLetters, f.Needs})
	}
	if g.json {
		return g.printJSON(rows)
	}
	for _, r := range rows {
		g.printf("%-25s %s\n", r.Name, r.About)
		var gives []string
		for _, k := range sortedKeys(r.Anomalies) {
			gives = append(gives, fmt.Sprintf("%s %d", k, r.Anomalies[k]))
		}
		for _, k := range sortedKeys(r.DeadLetters) {
			gives = append(gives, fmt.Sprintf("dead letter %s %d", k, r.DeadLetters[k]))
		}
		if len(gives) > 0 {
			g.printf("%-25s   gives: %s\n", "", strings.Join(gives, ", "))
		}
		if r.Needs != "" {
			g.printf("%-25s   needs: %s\n", "", r.Needs)
		}
	}
	return nil
}
