package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/reconcile"
	"provstream/internal/reference"
	"provstream/internal/topics"
	"provstream/verify"
)

// reconcileCmd is the oracle: see [reconcile].
type reconcileCmd struct {
	kafka.Flags `embed:""`
	Dir         string   `help:"Read the topics from the files of provctl demo --keep instead of a cluster." placeholder:"DIR" type:"existingdir"`
	JWKS        string   `name:"jwks" help:"File with the pinned public keys (JWK Set). Of --dir the default is its jwks.json." placeholder:"FILE" type:"existingfile"`
	Key         []string `help:"File with one more pinned public key (JWK)." placeholder:"FILE" type:"existingfile"`
	Lineage     bool     `help:"Recompute every turn, session and DAG from prov.steps." default:"true" negatable:""`
	Partition   []int32  `help:"Look only at the runs in these partitions of the prov.* topics: a large deployment in parts." placeholder:"N"`
	Drained     bool     `help:"Nothing is under way: what is not read, not sealed or not signed yet counts as missing."`

	Ingest  readerFlags `embed:"" group:"As ingest was configured"`
	Windows windowFlags `embed:"" group:"As the aggregator was configured, where its state topic does not say it"`
}

// readerFlags are the flags of ingest that decide what a record becomes.
type readerFlags struct {
	UnknownHooks    string        `help:"accept or reject a steps/* outside the inventory." enum:"accept,reject" default:"accept"`
	Provenance      string        `help:"optional or required on data-bearing fields." enum:"optional,required" default:"optional"`
	TenantTopics    string        `help:"JSON object, topic to tenant." placeholder:"FILE" type:"existingfile"`
	DefaultTenant   string        `help:"Tenant of envelopes that name none." default:"default"`
	MaxValueBytes   int           `help:"Largest hook record." default:"1048576"`
	MaxClockSkew    time.Duration `help:"How far event time and arrival may be apart." default:"300s"`
	DeadLetterValue string        `help:"full or reference." enum:"full,reference" default:"full"`
}

// windowFlags are the flags of the aggregator that decide when a window closes.
type windowFlags struct {
	CompleteGrace time.Duration `default:"1s" help:"A turn with all its steps closes so long after its turnEnd."`
	Grace         time.Duration `default:"10s" help:"A turn whose count is not met closes so long after its turnEnd."`
	SealGrace     time.Duration `default:"10s" help:"A run seals so long after its sessionEnd."`
	TurnIdle      time.Duration `default:"15m" help:"A turn without turnEnd closes after so long a silence."`
	SessionIdle   time.Duration `default:"1h" help:"A run without sessionEnd seals after so long a silence."`
	LateGrace     time.Duration `default:"1m" help:"What comes after the end seals after so long a silence."`
	LateRetention time.Duration `default:"10m" help:"How long an ended run is remembered."`
	IdleRetention time.Duration `default:"24h" help:"How long an idle run is remembered."`
	MaxRunWeight  int64         `default:"4194304" help:"Weight at which a segment seals."`
	MaxOpenSteps  int           `default:"2000000" help:"Most open steps of a partition."`
	MaxRunIDs     int           `name:"max-run-ids" default:"200000" help:"Most hashes that a run is remembered by."`
}

func (c *reconcileCmd) Help() string {
	return example("Proves that every record of the hook topics, and every element of a batch, is in exactly one place (a node of a signed DAG, a copy of one, "+
		"an open run, dropped by rule, or a dead letter alone), that nothing exists twice, that every signature, proof, checkpoint and coverage record holds, "+
		"and that every turn, session and DAG is what a second implementation makes of prov.steps. Names each record that is missing, repeated or wrong.",
		"provctl reconcile --brokers kafka:9092 --jwks pinned.json",
		"provctl demo --keep out && provctl reconcile --dir out --json")
}

func (c *reconcileCmd) Run(g *globals) error {
	opt, err := c.options(g)
	if err != nil {
		return err
	}
	var src reconcile.Source
	if c.Dir != "" {
		src = &reconcile.Dir{Path: c.Dir, Prefix: c.Prefix}
	} else {
		cluster, err := kafka.Connect(c.Flags)
		if err != nil {
			return err
		}
		defer cluster.Close()
		// What may not be seen cannot be missed: that must not pass for a proof.
		hidden, err := cluster.HiddenHooks(g.ctx)
		if err == nil && hidden != "" {
			err = errors.New(hidden)
		}
		if err != nil {
			return err
		}
		src = reconcile.NewKafka(cluster.Client, c.Prefix)
	}
	report, err := reconcile.Run(g.ctx, src, opt)
	g.progressDone()
	if err != nil {
		return err
	}
	if g.json {
		if err := g.printJSON(report); err != nil {
			return err
		}
	} else {
		printReconciled(g, &report)
	}
	if !report.Holds {
		return fmt.Errorf("%d records missing, %d repeated, %d wrong: %w", report.Missing, report.Repeated, report.Wrong, errDoesNotHold)
	}
	return nil
}

func (c *reconcileCmd) options(g *globals) (reconcile.Options, error) {
	tenants, err := c.Ingest.tenantTopics()
	faults := []error{err}
	keys, err := c.pinned()
	faults = append(faults, err)
	w := c.Windows
	return reconcile.Options{
		Reader: codec.Config{
			UnknownHooksReject: c.Ingest.UnknownHooks == "reject", ProvenanceRequired: c.Ingest.Provenance == "required",
			TenantTopics: tenants, DefaultTenant: c.Ingest.DefaultTenant, MaxValueBytes: c.Ingest.MaxValueBytes,
			MaxClockSkew: c.Ingest.MaxClockSkew, DecisionsTopic: c.Prefix + topics.Decisions,
		},
		Windows: reference.Config{
			CompleteGrace: w.CompleteGrace, Grace: w.Grace, SealGrace: w.SealGrace, TurnIdle: w.TurnIdle, SessionIdle: w.SessionIdle,
			LateGrace: w.LateGrace, LateRetention: w.LateRetention, IdleRetention: w.IdleRetention,
			MaxRunWeight: w.MaxRunWeight, MaxOpenSteps: w.MaxOpenSteps, MaxRunIDs: w.MaxRunIDs,
		},
		Lineage: c.Lineage, Only: c.Partition, Drained: c.Drained, Keys: keys, DeadLetterReference: c.Ingest.DeadLetterValue == "reference",
		Progress: func(topic string, partition int32, n int64) { g.progress("%s/%d: %d records", topic, partition, n) },
	}, errors.Join(faults...)
}

func (f *readerFlags) tenantTopics() (map[string]string, error) {
	if f.TenantTopics == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.TenantTopics)
	if err != nil {
		return nil, fmt.Errorf("--tenant-topics: %w", err)
	}
	var tenants map[string]string
	if err := json.Unmarshal(text, &tenants); err != nil {
		return nil, fmt.Errorf("--tenant-topics: %s: want a JSON object, topic to tenant: %w", f.TenantTopics, err)
	}
	return tenants, nil
}

// pinned reads the keys; none at all is said in the report.
func (c *reconcileCmd) pinned() (*verify.Keys, error) {
	file := c.JWKS
	if file == "" && c.Dir != "" {
		if name := filepath.Join(c.Dir, "jwks.json"); fileExists(name) {
			file = name
		}
	}
	var keys []verify.Key
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--jwks: %w", err)
		}
		if keys, err = verify.ParseJWKS(text); err != nil {
			return nil, fmt.Errorf("--jwks: %s: %w", file, err)
		}
	}
	for _, name := range c.Key {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		k, err := verify.ParseJWK(text)
		if err != nil {
			return nil, fmt.Errorf("--key: %s: %w", name, err)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return verify.NewKeys(keys...)
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func printReconciled(g *globals, r *reconcile.Report) {
	g.printf("%d records on the hook topics, %d envelopes\n", r.Inputs, r.Envelopes)
	g.printf("  %8d nodes of %d signed DAGs of %d runs\n", r.Nodes, r.DAGs, r.Runs)
	g.printf("  %8d copies\n  %8d in open runs\n  %8d dropped by rule\n  %8d dead letters (%d of them steps all the same)\n",
		r.Copies, r.Open, r.Dropped, r.DeadLetters, r.Rejected)
	if under := r.Unread + r.Ahead + r.Unsigned + r.Pending; under > 0 {
		g.printf("under way: %d records not read yet, %d read since, %d envelopes in DAGs not signed yet, %d outputs to come\n",
			r.Unread, r.Ahead, r.Unsigned, r.Pending)
	}
	g.printf("%d outputs recomputed, %d signatures with proofs, %d heads, %d coverage records checked\n", r.Recomputed, r.Signatures, r.Checkpoints, r.Coverage)
	for _, n := range r.Notes {
		g.printf("note: %s\n", n)
	}
	for _, p := range r.Problems {
		g.printf("%s\n", p)
	}
	if more := r.Missing + r.Repeated + r.Wrong - int64(len(r.Problems)); more > 0 {
		g.printf("and %d more\n", more)
	}
	g.printf("missing %d, repeated %d, wrong %d\n", r.Missing, r.Repeated, r.Wrong)
}
