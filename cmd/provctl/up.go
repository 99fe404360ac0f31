package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"provstream/internal/embedded"
	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/pipeline"
	"provstream/internal/window"
	"provstream/verify"
)

type upCmd struct {
	DataDir     string        `help:"Folder for the broker's data and the keys; it is made if need be and goes on where it stopped." default:"provstream-data" placeholder:"DIR"`
	Listen      string        `help:"Address of the broker for any Kafka client; it is advertised as given." default:"127.0.0.1:9092" placeholder:"ADDR"`
	Partitions  int32         `help:"Partitions of the topics; 0 is what the folder has, 4 in a new one." default:"0"`
	SealGrace   time.Duration `help:"A run seals so long after its sessionEnd." default:"10s"`
	SessionIdle time.Duration `help:"A run without sessionEnd seals so long after its last record." default:"1h"`
	LogLevel    string        `help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"warn"`
}

func (c *upCmd) Help() string {
	return example("The whole pipeline in one process, kept running on a broker with a data folder: for trying things out with kcat, the Java tools or your own "+
		"agents. Its hook topics have CreateTime. It is one broker without replicas and without authentication; for a deployment run cmd/ingest, "+
		"cmd/aggregator and cmd/signer against Apache Kafka.",
		"provctl up --data-dir ./data",
		"provctl generate | provctl replay - --shift-to-now --create-topics",
		"provctl verify --topic --jwks ./data/keys/jwks.json && provctl show")
}

func (c *upCmd) Run(g *globals) (err error) {
	log := slog.New(slog.NewTextHandler(g.stderr, &slog.HandlerOptions{Level: logLevel(c.LogLevel)}))
	keyDir := filepath.Join(c.DataDir, "keys")
	ring, err := ringIn(keyDir)
	if err != nil {
		return err
	}
	b, err := embedded.Start(g.ctx, embedded.Config{DataDir: filepath.Join(c.DataDir, "kafka"), Listen: c.Listen, Partitions: c.Partitions, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	flags := kafka.Flags{Brokers: []string{b.Addr}}
	cluster, err := kafka.Open(g.ctx, flags)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := publishKeys(g.ctx, cluster, ring.Public()); err != nil {
		return err
	}
	w := window.DefaultConfig()
	w.SealGrace, w.SessionIdle = c.SealGrace, c.SessionIdle
	p := pipeline.New(g.ctx, pipeline.Config{Flags: flags, KeyDir: keyDir, Window: w, Instance: "up", Logger: log})
	p.Start(pipeline.Ingest, pipeline.Aggregator, pipeline.Signer)
	if err := c.announce(g, b, keyDir); err != nil {
		return errors.Join(err, p.Stop())
	}
	<-p.Done()
	g.progress("stopping the services")
	err = p.Stop()
	g.progressDone()
	return err
}

// announce says where everything is, once it can be used.
func (c *upCmd) announce(g *globals, b *embedded.Broker, keyDir string) error {
	if g.json {
		return g.printJSON(map[string]any{"brokers": b.Addr, "data_dir": c.DataDir, "keys": keyDir, "jwks": filepath.Join(keyDir, jwksFile)})
	}
	g.printf("broker %s, data in %s, public keys in %s\n", b.Addr, c.DataDir, filepath.Join(keyDir, jwksFile))
	if b.Repaired != nil {
		g.printf("the broker was not stopped properly last time: %s\n", b.Repaired)
	}
	g.printf("stop with Ctrl-C; a second one ends at once\n")
	return nil
}

func logLevel(name string) slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(name)) // the flag's enum holds it to the names
	return l
}

// jwksFile is where `up` leaves the public keys, to be pinned by verifiers.
const jwksFile = "jwks.json"

// ringIn loads the keys of a folder and makes them in a new one.
func ringIn(dir string) (*keys.Ring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	for _, k := range []struct {
		file string
		use  verify.Use
	}{{keys.LogFile, verify.UseLog}, {keys.DAGFile, verify.UseDAG}} {
		path := filepath.Join(dir, k.file)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		private, err := keys.Generate(k.use, "")
		if err == nil {
			err = keys.WritePrivate(path, private)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	ring, err := keys.Load(dir)
	if err != nil {
		return nil, err
	}
	return ring, os.WriteFile(filepath.Join(dir, jwksFile), append(verify.JWKS(ring.Public()), '\n'), 0o644)
}
