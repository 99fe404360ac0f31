package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"provstream/internal/bench"
	"provstream/internal/fleet"
	"provstream/internal/kafka"
	"provstream/internal/window"
)

type benchCmd struct {
	fleetFlags   `embed:""`
	Input        string        `help:"Fleet file instead of a generated fleet." placeholder:"FILE"`
	Copies       int           `help:"Make the backlog of so many copies of the fleet, with fresh ids." default:"115" placeholder:"N"`
	Parallel     int           `help:"Copies that run side by side in event time." default:"10"`
	Brokers      []string      `help:"Measure on this cluster; without it on an embedded broker." placeholder:"ADDR"`
	Prefix       string        `help:"Deployment of services that run already (--pid); else a fresh one is made, and deleted in the end."`
	Partitions   int32         `help:"Partitions of every topic." default:"4"`
	Replication  int16         `help:"Replicas on a given cluster." default:"1"`
	Transactions string        `help:"on, off, or both by turns." enum:"on,off,both" default:"on"`
	SealGrace    time.Duration `help:"The aggregator's --seal-grace. Not 0 for a backlog: the tick then orders hook topics that drain at different speeds." default:"1ms"`
	Compression  string        `help:"Of the hook topics' batches: none, snappy, lz4 or zstd." default:"none"`
	Written      string        `name:"service-compression" help:"The services' --compression: none, snappy, lz4 or zstd." default:"snappy"`
	Disk         bool          `help:"Give the embedded broker a folder instead of memory."`
	Warm         int           `help:"Copies that the services drain before a drain is measured, in topics of their own, so that their processes are warm." placeholder:"N"`
	OneProcess   bool          `help:"Run the three services in one process, as provctl up does."`
	Runs         int           `help:"Measure so often; the median is told, with least and most." default:"1"`
	Measure      string        `help:"drain, latency, or both, one after the other." enum:"drain,latency,both" default:"both"`
	Rate         float64       `help:"Load for the latency, in records a second; 0 is a fifth of what the drain reached." default:"0"`
	Duration     time.Duration `help:"How long latency is measured, after a warm-up of 5 s." default:"10s"`
	Pid          []string      `help:"Watch running services instead of starting them: ingest=PID, aggregator=PID, signer=PID; broker=PID is watched beside whatever runs." placeholder:"NAME=PID"`
	Pprof        string        `help:"Leave CPU and allocation profiles of each process in this folder." placeholder:"DIR"`
}

func (c *benchCmd) Help() string {
	return example("Loads a backlog, starts the services, each as a process of its own, and measures until the last DAG is signed: envelopes a second, CPU and "+
		"allocations a record by service, peak memory, and bytes on each topic. Then it measures how long a session waits for its signed DAG under a fifth "+
		"of that load, with graces of 0.",
		"provctl bench --input fleet.jsonl.gz --copies 115 --runs 3 --json",
		"provctl bench --copies 120 --warm 60 --one-process --measure drain",
		"provctl bench --transactions both",
		"provctl bench --measure latency --rate 8000 --duration 60s",
		"provctl bench --brokers 127.0.0.1:9092 --pid broker=4711")
}

// benchReport is the document of bench --json: the figures of the median run,
// and every run.
type benchReport struct {
	bench.Result
	LeastPS float64        `json:"envelopes_per_s_min"`
	MostPS  float64        `json:"envelopes_per_s_max"`
	All     []bench.Result `json:"all_runs"`
	// Off is the same without transactions, with --transactions=both; Cost is
	// what transactions take of the time, in percent.
	Off  *benchReport `json:"transactions_off,omitempty"`
	Cost *float64     `json:"transactions_cost_percent,omitempty"`
}

func (c *benchCmd) Run(g *globals) error {
	cfg, err := c.config(g)
	if err != nil {
		return err
	}
	r := &benchReport{}
	if c.Measure != "latency" {
		if r, err = c.drain(g, cfg); err != nil {
			return err
		}
	}
	if c.Measure != "drain" {
		if err := c.latency(g, cfg, r); err != nil {
			return err
		}
	}
	if g.json {
		return g.printJSON(r)
	}
	r.text(g)
	return nil
}

// drain measures the backlog as often as asked for, with and without
// transactions by turns where both are asked for.
func (c *benchCmd) drain(g *globals, cfg bench.Config) (*benchReport, error) {
	var on, off []bench.Result
	for range max(c.Runs, 1) {
		for _, no := range []bool{false, true} {
			if no && c.Transactions == "on" || !no && c.Transactions == "off" {
				continue
			}
			cfg.NoTransactions = no
			res, err := c.once(g, cfg)
			if err != nil {
				return nil, err
			}
			if no {
				off = append(off, res)
			} else {
				on = append(on, res)
			}
		}
	}
	if c.Transactions == "off" {
		return median(off), nil
	}
	r := median(on)
	if c.Transactions == "both" {
		r.Off = median(off)
		cost := 100 * (r.Seconds - r.Off.Seconds) / r.Seconds
		r.Cost = &cost
	}
	return r, nil
}

// latency adds the latency under load to a report; without a drain its other
// figures are those of this load.
func (c *benchCmd) latency(g *globals, cfg bench.Config, r *benchReport) error {
	cfg.Rate, cfg.Duration, cfg.NoTransactions = c.Rate, c.Duration, c.Transactions == "off"
	if cfg.Rate == 0 {
		cfg.Rate = r.EnvelopesPS / 5
	}
	if cfg.Rate == 0 {
		return fmt.Errorf("--rate: name the load, since nothing is drained before")
	}
	cfg.Window.SealGrace, cfg.Window.CompleteGrace, cfg.Window.Grace = 0, 0, 0
	if cfg.PprofDir != "" {
		cfg.PprofDir = filepath.Join(cfg.PprofDir, "latency")
		if err := os.MkdirAll(cfg.PprofDir, 0o755); err != nil {
			return err
		}
	}
	res, err := c.once(g, cfg)
	if err != nil {
		return err
	}
	if r.Records == 0 {
		r.Result = res
	}
	r.Latency = res.Latency
	return nil
}

// once measures once, on a deployment of its own unless one was named.
func (c *benchCmd) once(g *globals, cfg bench.Config) (bench.Result, error) {
	if c.Prefix == "" && len(c.Brokers) > 0 {
		cfg.Flags.Prefix = fmt.Sprintf("bench-%d.", time.Now().UnixNano())
	}
	res, err := bench.Run(g.ctx, cfg)
	g.progressDone()
	return res, err
}

func (c *benchCmd) config(g *globals) (cfg bench.Config, err error) {
	exe, err := os.Executable()
	if err != nil {
		return cfg, err
	}
	w := window.DefaultConfig()
	w.SealGrace = c.SealGrace
	cfg = bench.Config{
		Flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix}, Copies: fleet.Copies{N: c.Copies, Parallel: c.Parallel, Salt: "bench"},
		Partitions: c.Partitions, Replication: c.Replication, Window: w, Compression: c.Compression, Written: c.Written, PprofDir: c.Pprof,
		Warm: c.Warm, OneProcess: c.OneProcess,
		Command: []string{exe, "bench-child"}, Delete: len(c.Brokers) > 0 && c.Prefix == "",
		Disk: c.Disk, Stderr: g.stderr, Progress: g.progress, Pids: map[string]int{},
	}
	if c.Input != "" {
		cfg.Source = fleet.FileSource(c.Input, g.stdin)
	} else {
		gen, err := c.generator()
		if err != nil {
			return cfg, err
		}
		cfg.Source = generatorSource(gen)
	}
	// The fleet is gone over once for each ten copies: it is kept in memory.
	if cfg.Source, err = inMemory(cfg.Source); err != nil {
		return cfg, err
	}
	for _, p := range c.Pid {
		name, pid, err := namedPid(p)
		if err != nil {
			return cfg, err
		}
		cfg.Pids[name] = pid
	}
	if cfg.Watches() && (c.Warm > 0 || c.OneProcess) {
		return cfg, fmt.Errorf("--warm, --one-process: the services of --pid are started by somebody else")
	}
	if c.Pprof != "" {
		err = os.MkdirAll(c.Pprof, 0o755)
	}
	return cfg, err
}

func inMemory(src fleet.Source) (fleet.Source, error) {
	var kept []fleet.Record
	if err := src(func(r *fleet.Record) error { kept = append(kept, *r); return nil }); err != nil {
		return nil, err
	}
	return func(f func(*fleet.Record) error) error {
		for i := range kept {
			if err := f(&kept[i]); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func namedPid(s string) (string, int, error) {
	for i := range s {
		if s[i] == '=' {
			pid, err := strconv.Atoi(s[i+1:])
			if err == nil && pid > 0 {
				return s[:i], pid, nil
			}
		}
	}
	return "", 0, fmt.Errorf("--pid: %q is no NAME=PID", s)
}

// median returns the run in the middle by time, with the others beside it.
func median(runs []bench.Result) *benchReport {
	if len(runs) == 0 {
		return &benchReport{}
	}
	sorted := slices.Clone(runs)
	slices.SortFunc(sorted, func(a, b bench.Result) int {
		if a.EnvelopesPS < b.EnvelopesPS {
			return -1
		}
		return 1
	})
	return &benchReport{
		Result: sorted[len(sorted)/2], LeastPS: sorted[0].EnvelopesPS, MostPS: sorted[len(sorted)-1].EnvelopesPS, All: runs,
	}
}

func (r *benchReport) text(g *globals) {
	if r.EnvelopesPS > 0 {
		g.printf("%d records, %d runs, %d DAGs in %.2f s: %.0f envelopes/s", r.Records, r.Runs, r.DAGs, r.Seconds, r.EnvelopesPS)
		if len(r.All) > 1 {
			g.printf(" (median of %d; %.0f to %.0f)", len(r.All), r.LeastPS, r.MostPS)
		}
		g.printf("\n")
	}
	if l := r.Latency; l != nil {
		g.printf("%d sessions at %.0f records/s: sessionEnd to signed DAG p50 %.0f ms, p90 %.0f ms, p99 %.0f ms, most %.0f ms; %d not signed\n",
			l.Sessions, l.Rate, l.P50, l.P90, l.P99, l.Max, l.Unsigned)
	}
	g.printf("%-12s %14s %12s %12s %14s\n", "", "CPU us/record", "allocs", "bytes", "peak RSS MiB")
	for _, name := range sortedKeys(r.CPU) {
		g.printf("%-12s %14.1f %12.2f %12.0f %14.0f\n", name, r.CPU[name], r.Allocs[name], r.AllocB[name], float64(r.RSS[name])/(1<<20))
	}
	for _, t := range sortedKeys(r.PerTopic) {
		g.printf("%-24s %10.1f bytes/record\n", t, float64(r.PerTopic[t])/float64(max(r.Records, 1)))
	}
	if r.Off != nil {
		g.printf("without transactions %.0f envelopes/s: transactions take %.0f %% of the time\n", r.Off.EnvelopesPS, *r.Cost)
	}
}

// benchChildCmd is a process that bench starts; people have no use for it.
type benchChildCmd struct {
	Config string `arg:"" help:"What the process is, as JSON."`
}

func (c *benchChildCmd) Help() string {
	return example("A service or the broker of a measurement.", "provctl bench")
}

func (c *benchChildCmd) Run(g *globals) error {
	return bench.Child(g.ctx, c.Config, g.stdin, g.stdout, g.stderr)
}
