package main

import (
	"errors"
	"fmt"
	"time"

	"provstream/internal/audit"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

type verifyCmd struct {
	kafka.Flags `embed:""`
	pins        `embed:""`
	File        string `arg:"" optional:"" help:"File of signed DAGs (or of checkpoints), one a line: values as they are, or records as demo --keep leaves them; a folder of demo --keep; - for stdin." placeholder:"FILE"`
	Topic       bool   `help:"Verify prov.dags on the cluster instead of a file."`
	Proof       bool   `help:"Demand that each DAG proves its place in the log (header tlog-proof)."`
	Log         bool   `help:"Demand that the DAGs are the whole log of each partition, from the first record to the newest signed head; implies --proof."`
	Checkpoints string `help:"With --log: the records of prov.checkpoints. Default: prov.checkpoints.jsonl beside FILE, if it is there; with --topic the topic." placeholder:"FILE"`
	Since       string `help:"File with the last checkpoint seen of each log: the logs must continue them. It is written anew when all holds; one that does not exist is begun. Implies --log." placeholder:"CHECKPOINT"`
	Deployment  string `help:"Take only logs of this deployment." placeholder:"NAME"`
	LoggedAs    string `help:"The name that the topic of the DAGs had where it was signed, if these are records of a mirror that has renamed it." placeholder:"TOPIC"`
	Foreign     bool   `help:"Take Kindgi DAGs of other makers too: nodes and edges in any order, ids of any form."`
}

func (c *verifyCmd) Help() string {
	return example("Checks signed DAGs with pinned public keys: strict JSON, RFC 8785 form, schema, version, key and tenant, signature, graph; a proof where one is "+
		"there. Status 0: all of it holds; 1: something does not, and the first thing is told; 2: could not run. The keys must come to you by a way that "+
		"you trust: nothing on the cluster is believed.",
		"provctl demo --keep out && provctl verify out --jwks out/jwks.json --log",
		"provctl verify --topic --brokers kafka:9092 --jwks pinned.json --since seen.checkpoints",
		"kcat -C -b kafka:9092 -t prov.dags -e -X isolation.level=read_committed | provctl verify - --key acme.pem")
}

func (c *verifyCmd) Run(g *globals) error {
	if (c.File == "") == !c.Topic {
		return errors.New("verify: name a FILE, - for stdin, or --topic")
	}
	keys, err := c.load()
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	start, shown := time.Now(), time.Time{}
	cfg := audit.Config{Keys: keys, Proof: c.Proof, Log: c.Log || c.Since != "", Deployment: c.Deployment, LoggedAs: c.LoggedAs, Foreign: c.Foreign}
	if g.tty {
		cfg.Progress = func(n int64) {
			if time.Since(shown) > 200*time.Millisecond {
				shown = time.Now()
				g.progress("%d records verified, %.0f a second", n, float64(n)/time.Since(start).Seconds())
			}
		}
	}
	if c.Since != "" {
		if cfg.Since, err = audit.ReadSeen(c.Since, keys); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	source, done, err := c.sources(g, &cfg)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer done()
	report, err := audit.Run(g.ctx, cfg, source)
	g.progressDone()
	var finding *audit.Finding
	if err != nil && !errors.As(err, &finding) {
		return fmt.Errorf("verify: %w", err)
	}
	if finding == nil && report.DAGs+report.Heads == 0 {
		return errors.New("verify: there is nothing to verify: no record was read; on a cluster nothing may be signed yet: a run is, --seal-grace (10 s) after its sessionEnd")
	}
	if finding == nil && c.Since != "" {
		if err := mergeSeen(cfg.Since, report.Seen).Write(c.Since); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	if err := c.print(g, report, finding, time.Since(start)); err != nil {
		return err
	}
	if finding != nil {
		return fmt.Errorf("%w: %w", errDoesNotHold, finding)
	}
	return nil
}

// mergeSeen keeps what was seen of logs that were not looked at this time.
func mergeSeen(before, now audit.Seen) audit.Seen {
	out := audit.Seen{}
	for o, h := range before {
		out[o] = h
	}
	for o, h := range now {
		if h.Size >= out[o].Size {
			out[o] = h
		}
	}
	return out
}

// sources opens the DAGs and, with --log, the checkpoints beside them.
func (c *verifyCmd) sources(g *globals, cfg *audit.Config) (audit.Source, func(), error) {
	var closers []func()
	done := func() {
		for _, f := range closers {
			f()
		}
	}
	checkpoints := c.Checkpoints
	var source audit.Source
	if c.Topic {
		cluster, err := evidenceCluster(c.Flags)
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, cluster.Close)
		source = topicSource(cluster, c.Flags.Topic(topics.DAGs))
		if cfg.Log && checkpoints == "" {
			cfg.Heads = topicSource(cluster, c.Flags.Topic(topics.Checkpoints))
		}
	} else {
		file := c.File
		if file != "-" && isDir(file) {
			file = keptFile(file, c.Flags.Topic(topics.DAGs))
		}
		var closeIt func()
		var err error
		if source, closeIt, err = g.fileSource(file); err != nil {
			return nil, done, err
		}
		closers = append(closers, closeIt)
		if checkpoints == "" {
			checkpoints = beside(file, topics.DAGs)
		}
	}
	if cfg.Log && checkpoints != "" {
		heads, closeIt, err := g.fileSource(checkpoints)
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, closeIt)
		cfg.Heads = heads
	}
	return source, done, nil
}

// print writes the report.
func (c *verifyCmd) print(g *globals, r *audit.Report, f *audit.Finding, took time.Duration) error {
	if g.json {
		return g.printJSON(verifyJSON(r, f, took))
	}
	if f != nil {
		g.printf("checked until then: %d DAGs, %d checkpoints\n", r.DAGs, r.Heads)
		return nil
	}
	if r.DAGs > 0 {
		g.printf("%d signed DAGs hold (%d nodes, %d edges; %d tenants; created %s to %s)\n", r.DAGs, r.Nodes, r.Edges, len(r.Tenants), r.First, r.Last)
		for _, id := range sortedKeys(r.Keys) {
			g.printf("  key %s signed %d\n", id, r.Keys[id])
		}
		g.printf("%d of them prove their place in a log\n", r.Proven)
	}
	if r.Heads > 0 {
		g.printf("%d checkpoints hold, each continues the one before it\n", r.Heads)
	}
	for _, l := range r.Logs {
		since := ""
		if l.Since > 0 {
			since = fmt.Sprintf(", continues the head of size %d seen before", l.Since)
		}
		g.printf("  log %s: size %d, root %s%s\n", l.Origin, l.Head, l.Root, since)
	}
	if !(c.Log || c.Since != "" || c.Proof) && r.Proven == 0 {
		g.printf("whether any are missing was not asked: use --log\n")
	}
	return nil
}

// verifyDoc is the document of --json.
type verifyDoc struct {
	Holds       bool             `json:"holds"`
	DAGs        int64            `json:"dags"`
	Nodes       int64            `json:"nodes"`
	Edges       int64            `json:"edges"`
	Proven      int64            `json:"proven"`
	Checkpoints int64            `json:"checkpoints"`
	Keys        map[string]int64 `json:"keys"`
	Tenants     map[string]int64 `json:"tenants"`
	First       string           `json:"first_created_at,omitempty"`
	Last        string           `json:"last_created_at,omitempty"`
	Logs        []logDoc         `json:"logs"`
	Finding     *findingDoc      `json:"finding,omitempty"`
	Seconds     float64          `json:"seconds"`
}

type logDoc struct {
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
	Root   string `json:"root"`
	Head   int64  `json:"head"`
	Since  int64  `json:"since,omitempty"`
}

type findingDoc struct {
	Kind      string `json:"kind"`
	Detail    string `json:"detail"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Offset    *int64 `json:"offset,omitempty"`
	Line      int64  `json:"line,omitempty"`
	Path      string `json:"path,omitempty"`
	KeyID     string `json:"key_id,omitempty"`
	Origin    string `json:"origin,omitempty"`
	Index     *int64 `json:"index,omitempty"`
	Got       string `json:"got,omitempty"`
	Want      string `json:"want,omitempty"`
}

func verifyJSON(r *audit.Report, f *audit.Finding, took time.Duration) verifyDoc {
	d := verifyDoc{
		Holds: f == nil, DAGs: r.DAGs, Nodes: r.Nodes, Edges: r.Edges, Proven: r.Proven, Checkpoints: r.Heads,
		Keys: r.Keys, Tenants: r.Tenants, First: r.First, Last: r.Last, Logs: []logDoc{}, Seconds: took.Seconds(),
	}
	for _, l := range r.Logs {
		d.Logs = append(d.Logs, logDoc{l.Origin, l.Size, l.Root.String(), l.Head, l.Since})
	}
	if f == nil {
		return d
	}
	e := f.Err
	d.Finding = &findingDoc{
		Kind: string(e.Kind), Detail: e.Detail, Topic: f.Topic, Line: f.Line, Path: e.Path, KeyID: e.KeyID, Origin: e.Origin, Got: e.Got, Want: e.Want,
	}
	if f.Placed {
		d.Finding.Partition, d.Finding.Offset = &f.Partition, &f.Offset
	}
	if e.Index >= 0 {
		d.Finding.Index = &e.Index
	}
	return d
}
