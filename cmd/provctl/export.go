package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"provstream/internal/audit"
	"provstream/internal/evidence"
	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/kindgi"
	"provstream/internal/topics"
	"provstream/verify"
)

type exportCmd struct {
	kafka.Flags `embed:""`
	pins        `embed:""`
	RunID       string `arg:"" name:"run" help:"Run id (the ACS session id), tenant/run id, or the id of one DAG."`
	From        string `help:"Read the DAGs from a file, a folder that demo --keep left, or - for stdin, instead of the cluster." placeholder:"PATH"`
	ExportKey   string `help:"Private key that signs the export: PKCS#8 PEM, mode 0600. Its public half is what the receiver trusts." default:"keys/export.pem" placeholder:"FILE"`
	Out         string `help:"Write each envelope to <DAG id>.json in this folder instead of stdout." placeholder:"DIR"`
}

func (c *exportCmd) Help() string {
	return example("Writes Kindgi's signed-export envelope of each DAG of the run (a long run has one a segment), one JSON document a line. Each DAG is verified with "+
		"the pinned keys first; the envelope bears a signature of its own, by the export key, since its body is another text than the DAG.",
		"provctl keys new --use export --dir keys",
		"provctl export 34b81ca0-b92f-5432-b4ba-bc420e8abc3c --from out --jwks out/jwks.json > run.json",
		"python3 -c 'import json,sys; from kindgi import exports; print(exports.verify_signed_export(json.load(open(\"run.json\")), trusted_keys=[open(\"keys/export.pub.pem\").read()]))'")
}

func (c *exportCmd) Run(g *globals) error {
	pinned, err := c.load()
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	key, err := keys.ReadPrivate(c.ExportKey, verify.UseDAG, "")
	if err != nil {
		return fmt.Errorf("export: --export-key: %w (make one with provctl keys new --use export)", err)
	}
	source, done, err := c.source(g)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer done()
	x := &exporter{c: c, v: verify.NewVerifier(pinned), key: key, tenants: map[string]bool{}}
	x.v.CheckID = true
	if err := audit.Each(g.ctx, source, x.take); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	switch {
	case len(x.envelopes) == 0:
		return fmt.Errorf("export: no DAG of run %s was found", c.RunID)
	case len(x.tenants) > 1:
		return fmt.Errorf("export: run %s exists for several tenants: name it as tenant/run", c.RunID)
	}
	for i, e := range x.envelopes {
		if c.Out == "" {
			g.printf("%s\n", e)
			continue
		}
		path := filepath.Join(c.Out, strings.ReplaceAll(x.ids[i], string(filepath.Separator), "_")+".json")
		if err := os.WriteFile(path, append(e, '\n'), 0o644); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	return nil
}

func (c *exportCmd) source(g *globals) (audit.Source, func(), error) {
	topic := c.Flags.Topic(topics.DAGs)
	if c.From == "" {
		cluster, err := evidenceCluster(c.Flags)
		if err != nil {
			return nil, nil, err
		}
		return topicSource(cluster, topic), cluster.Close, nil
	}
	file := c.From
	if file != "-" && isDir(file) {
		file = keptFile(file, topic)
	}
	return g.fileSource(file)
}

// exporter picks the DAGs of the run out of the stream.
type exporter struct {
	c         *exportCmd
	v         *verify.Verifier
	key       *keys.Private
	r         kindgi.Reader
	ids       []string
	envelopes [][]byte
	tenants   map[string]bool
}

func (x *exporter) take(rec *audit.Record) error {
	var e *kindgi.Error
	if err := x.r.Read(rec.Value); err != nil && !errors.As(err, &e) {
		return err
	} else if err != nil && !strings.Contains(string(rec.Value), x.c.RunID) {
		return nil // something else that is broken; provctl verify tells
	} else if err != nil {
		return fmt.Errorf("%w: %s: %w", errDoesNotHold, rec.Where(), err)
	}
	run, tenant, id := x.r.Text(x.r.RunID), x.r.Text(x.r.TenantID), x.r.Text(x.r.ID)
	if want := x.c.RunID; want != run && want != tenant+"/"+run && want != topics.RunKey(tenant, run) && want != id {
		return nil
	}
	var err error
	if proof, ok := rec.Headers[evidence.HeaderProof]; ok && x.v.HasLogKey() {
		_, err = x.v.Record(rec.Value, proof)
	} else {
		_, err = x.v.DAG(rec.Value)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errDoesNotHold, rec.Where(), err)
	}
	envelope, err := x.r.Export(x.key.Signer, time.Now())
	if err != nil {
		return err
	}
	x.ids, x.envelopes = append(x.ids, id), append(x.envelopes, envelope)
	x.tenants[tenant] = true
	return nil
}
