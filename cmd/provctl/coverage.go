package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/audit"
	"provstream/internal/kafka"
	"provstream/internal/topics"
	"provstream/verify"
)

type coverageCmd struct {
	kafka.Flags `embed:""`
	pins        `embed:""`
	File        string `arg:"" optional:"" help:"prov.coverage.jsonl of demo --keep, or its folder; - for stdin. Without it: the cluster." placeholder:"FILE"`
	Checkpoints string `help:"The records of prov.checkpoints. Default: prov.checkpoints.jsonl beside FILE; of a cluster the topic." placeholder:"FILE"`
	Since       string `help:"File with the last checkpoint seen of each log, as in provctl verify; it is read here, not written." placeholder:"CHECKPOINT"`
	Deployment  string `help:"Take only logs of this deployment." placeholder:"NAME"`
	Values      bool   `help:"Read the hook topics too (of a folder: its files) and compare their records with the hashes that were logged when they were read."`
	NoGaps      bool   `help:"Status 1 if ingest has told of offsets that were gone before it could read them."`
}

func (c *coverageCmd) Help() string {
	return example("Tells for each hook partition what ingest has read and what became of it, which offsets are missing, and whether the signed log covers that. "+
		"The log is checked when a log key is pinned. Status 1 when offsets are accounted for by nobody, or twice, or when the log does not hold.",
		"provctl coverage out --jwks out/jwks.json",
		"provctl coverage --brokers kafka:9092 --jwks pinned.json --json")
}

func (c *coverageCmd) Run(g *globals) error {
	cfg := audit.Config{Coverage: true, Deployment: c.Deployment}
	if c.Values {
		cfg.Values = audit.NewValues()
	}
	signed := len(c.JWKS)+len(c.LogKey)+len(c.Key) > 0
	if signed {
		var err error
		if cfg.Keys, err = c.load(); err != nil {
			return fmt.Errorf("coverage: %w", err)
		}
		if c.Since != "" {
			if cfg.Since, err = audit.ReadSeen(c.Since, cfg.Keys); err != nil {
				return fmt.Errorf("coverage: %w", err)
			}
			for origin := range cfg.Since { // heads of DAG logs say nothing here
				if !strings.Contains(origin, "/"+c.Flags.Topic(topics.Coverage)+"/") {
					delete(cfg.Since, origin)
				}
			}
		}
	}
	if shown := time.Now(); g.tty {
		cfg.Progress = func(n int64) {
			if time.Since(shown) > 200*time.Millisecond {
				shown = time.Now()
				g.progress("%d coverage records", n)
			}
		}
	}
	source, done, err := c.sources(g, &cfg, signed)
	if err != nil {
		return fmt.Errorf("coverage: %w", err)
	}
	defer done()
	report, err := audit.Run(g.ctx, cfg, source)
	g.progressDone()
	var finding *audit.Finding
	if err != nil && !errors.As(err, &finding) {
		return fmt.Errorf("coverage: %w", err)
	}
	if finding == nil && report.CoverageRecords == 0 {
		return errors.New("coverage: no coverage record was read")
	}
	var values *audit.ValuesReport
	if finding == nil && c.Values {
		v, err := c.compare(g, cfg.Values)
		if err != nil && !errors.As(err, &finding) {
			return fmt.Errorf("coverage: %w", err)
		}
		values = &v
	}
	if err := c.print(g, report, finding, values, cfg.Heads != nil); err != nil {
		return err
	}
	return c.verdict(report, finding)
}

func (c *coverageCmd) verdict(r *audit.Report, f *audit.Finding) error {
	if f != nil {
		return fmt.Errorf("%w: %w", errDoesNotHold, f)
	}
	if !c.NoGaps {
		return nil
	}
	for _, p := range r.Ledger.Partitions() {
		if len(p.Gaps) > 0 {
			return fmt.Errorf("%w: %s/%d: offsets %d to %d were gone before ingest could read them", errDoesNotHold, p.Topic, p.Partition, p.Gaps[0].From, p.Gaps[0].To-1)
		}
	}
	return nil
}

func (c *coverageCmd) sources(g *globals, cfg *audit.Config, signed bool) (audit.Source, func(), error) {
	var closers []func()
	done := func() {
		for _, f := range closers {
			f()
		}
	}
	topic, checkpoints := c.Flags.Topic(topics.Coverage), c.Checkpoints
	var source audit.Source
	if c.File == "" {
		cluster, err := evidenceCluster(c.Flags)
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, cluster.Close)
		source = topicSource(cluster, topic)
		if signed && checkpoints == "" {
			cfg.Heads = topicSource(cluster, c.Flags.Topic(topics.Checkpoints))
		}
	} else {
		file := c.File
		if file != "-" && isDir(file) {
			file = keptFile(file, topic)
		}
		var closeIt func()
		var err error
		if source, closeIt, err = g.fileSource(file); err != nil {
			return nil, done, err
		}
		closers = append(closers, closeIt)
		if checkpoints == "" {
			checkpoints = beside(file, topics.Coverage)
		}
	}
	if signed && checkpoints != "" {
		heads, closeIt, err := g.fileSource(checkpoints)
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, closeIt)
		cfg.Heads = heads
	}
	return source, done, nil
}

// coverageDoc is a hook partition in the output of --json.
type coverageDoc struct {
	Topic       string               `json:"topic"`
	Partition   int32                `json:"partition"`
	From        int64                `json:"from"`
	To          int64                `json:"to"`
	Ranges      int64                `json:"ranges"`
	Records     int64                `json:"records"`
	Steps       int64                `json:"steps"`
	Rejected    int64                `json:"rejected"`
	DeadLetters int64                `json:"dead_letters"`
	Dropped     int64                `json:"dropped"`
	Gaps        []verify.OffsetRange `json:"gaps"`
	Missing     []verify.OffsetRange `json:"missing"`
	Repeated    []verify.OffsetRange `json:"repeated"`
}

func (c *coverageCmd) print(g *globals, r *audit.Report, f *audit.Finding, values *audit.ValuesReport, logged bool) error {
	ps := slices.Clone(r.Ledger.Partitions())
	slices.SortFunc(ps, func(a, b *verify.PartitionCoverage) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	if g.json {
		docs := []coverageDoc{}
		for _, p := range ps {
			docs = append(docs, coverageDoc{
				p.Topic, p.Partition, p.From, p.To, p.Ranges, p.Records, p.Steps, p.Rejected, p.DeadLetters, p.Dropped,
				nonNil(p.Gaps), nonNil(p.Missing), nonNil(p.Repeated),
			})
		}
		v := verifyJSON(r, f, 0)
		v.Logs = slices.DeleteFunc(v.Logs, func(l logDoc) bool { return !strings.Contains(l.Origin, topics.Coverage+"/") })
		return g.printJSON(map[string]any{
			"values": values, "holds": f == nil, "partitions": docs, "records": r.CoverageRecords, "log_checked": logged, "unsigned": r.Unsigned,
			"checkpoints": r.Heads, "logs": v.Logs, "finding": v.Finding,
		})
	}
	for _, p := range ps {
		g.printf("%s/%d  offsets %d to %d: %d records, %d steps (%d rejected), %d dead letters, %d dropped\n", p.Topic, p.Partition, p.From, p.To-1, p.Records, p.Steps, p.Rejected, p.DeadLetters, p.Dropped)
		for _, x := range []struct {
			what   string
			ranges []verify.OffsetRange
		}{{"were gone before they could be read", p.Gaps}, {"are accounted for by nobody", p.Missing}, {"are accounted for twice", p.Repeated}} {
			for _, o := range x.ranges {
				g.printf("    offsets %d to %d %s\n", o.From, o.To-1, x.what)
			}
		}
	}
	if values != nil && f == nil {
		g.printf("%d records of the hook topics are those that were read (%d ranges; %d more are gone and cannot be compared)\n", values.Records, values.Ranges, values.Gone)
	}
	switch {
	case !logged:
		g.printf("whether the signed log covers this was not checked: pin a log key with --jwks or --log-key\n")
	case r.Unsigned > 0:
		g.printf("the signed log covers all but the newest %d of %d coverage records\n", r.Unsigned, r.CoverageRecords)
	case f == nil:
		g.printf("the signed log covers all %d coverage records\n", r.CoverageRecords)
	}
	return nil
}

// beside finds the kept checkpoints that belong to a kept file of a topic.
func beside(file, topic string) string {
	dir, name := filepath.Split(file)
	prefix, ok := strings.CutSuffix(name, topic+".jsonl")
	if !ok {
		return ""
	}
	path := filepath.Join(dir, prefix+topics.Checkpoints+".jsonl")
	if !exists(path) {
		return ""
	}
	return path
}

// compare holds the hook topics against the hashes in the coverage records.
func (c *coverageCmd) compare(g *globals, v *audit.Values) (audit.ValuesReport, error) {
	if c.File == "-" {
		return audit.ValuesReport{}, errors.New("--values: stdin has no hook topics beside it; give a folder or the cluster")
	}
	if c.File != "" {
		dir := c.File
		if !isDir(dir) {
			dir = filepath.Dir(dir)
		}
		return v.Compare(g.ctx, keptHooks(dir))
	}
	cluster, err := evidenceCluster(c.Flags)
	if err != nil {
		return audit.ValuesReport{}, err
	}
	defer cluster.Close()
	return v.Compare(g.ctx, clusterHooks{cluster})
}

// clusterHooks are the hook topics of a cluster, as a reader of committed
// records sees them.
type clusterHooks struct{ c *kafka.Cluster }

func (h clusterHooks) Start(ctx context.Context, topic string, partition int32) (int64, error) {
	b, err := h.c.Bounds(ctx, topic, partition)
	return b.Start, err
}

func (h clusterHooks) Read(ctx context.Context, topic string, partition int32, from, to int64, fn func(int64, []byte) error) error {
	return h.c.Read(ctx, topic, partition, from, to, kafka.ReadCommitted, func(recs []*kgo.Record) error {
		for _, r := range recs {
			if err := fn(r.Offset, r.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

// keptHooks are the hook topics in a folder that demo --keep left. They are
// whole.
type keptHooks string

func (keptHooks) Start(context.Context, string, int32) (int64, error) { return 0, nil }

func (dir keptHooks) Read(ctx context.Context, topic string, partition int32, from, to int64, fn func(int64, []byte) error) error {
	f, err := os.Open(keptFile(string(dir), topic))
	if err != nil {
		return err
	}
	defer f.Close()
	return audit.Each(ctx, audit.Lines(f), func(r *audit.Record) error {
		if !r.Placed {
			return fmt.Errorf("%s: %s is no kept record", f.Name(), r.Where())
		}
		if r.Partition != partition || r.Offset < from || r.Offset >= to {
			return nil
		}
		return fn(r.Offset, r.Value)
	})
}
