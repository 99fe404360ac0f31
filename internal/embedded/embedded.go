// Package embedded runs a Kafka broker inside the process: kfake, which comes
// with franz-go, with our topics and, on request, a data folder. It is what
// `provctl demo` and `provctl up` run on, and any Kafka client can use it: kcat,
// the Java tools, franz-go, librdkafka. It has no authentication; it listens on
// loopback unless it is told another address, and it advertises the address it
// is bound to.
//
// # What it promises
//
// Without a data folder everything is in memory and gone after Close.
//
// With one, a record is in a file before its produce request is answered, so
// the end of the process at any moment, SIGKILL included, loses nothing that was
// acknowledged. (The files are not fsynced: the loss of the machine's power is
// another matter, as with Apache Kafka's defaults, but here without replicas.)
//
// kfake itself does not promise that a transaction is atomic over a SIGKILL of
// the broker: it appends the markers, the group offsets and the producer's state
// one after the other. Start repairs that before kfake reads the folder; see
// repair.go for what is repaired and what is refused.
//
// kfake ignores message.timestamp.type=LogAppendTime: hook records carry the
// producer's time.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"provstream/internal/topics"
	"provstream/internal/topology"
)

// DefaultPartitions is the partition count of a new embedded deployment.
const DefaultPartitions = 4

// Config says how to run the broker.
type Config struct {
	// DataDir is the data folder; "" keeps everything in memory. One process
	// uses a folder at a time.
	DataDir string
	// Listen is the address to bind and to advertise, so its host must be a
	// concrete one. "" is 127.0.0.1 and a free port.
	Listen string
	// Prefix stands before every topic's name.
	Prefix string
	// Partitions is the count of the partitioned topics. 0 takes over what the
	// folder has, and is DefaultPartitions in a new one.
	Partitions int32
	// Log gets what the broker has to say; nil discards it.
	Log *slog.Logger
}

// Broker is a running broker.
type Broker struct {
	// Addr is host:port, for --brokers.
	Addr string
	// Repaired says what Start had to repair in the data folder; nil if the
	// last process closed it properly.
	Repaired *Repair

	cluster *kfake.Cluster
	journal *journal
	unlock  func() error
	dir     string
	once    sync.Once
	err     error
}

// Start starts the broker and creates the deployment's topics, hook topics
// included, unless the data folder already has them. It returns when every
// partition can be written. The context bounds the start, not the broker's life.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkListen(cfg.Listen); err != nil {
		return nil, err
	}
	b := &Broker{dir: cfg.DataDir, unlock: func() error { return nil }}
	if cfg.DataDir != "" {
		if err := b.openFolder(cfg); err != nil {
			return nil, err
		}
	}
	if err := b.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// openFolder locks the data folder and repairs it.
func (b *Broker) openFolder(cfg Config) error {
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("embedded broker: data folder: %w", err)
	}
	unlock, err := lock(cfg.DataDir)
	if err != nil {
		return fmt.Errorf("embedded broker: data folder %s is in use by another process (%w): stop it, or give another folder", cfg.DataDir, err)
	}
	b.unlock = unlock
	if err := undoCompaction(cfg.DataDir); err != nil {
		return errors.Join(fmt.Errorf("embedded broker: data folder: %w", err), b.Close())
	}
	if b.Repaired, err = repair(cfg.DataDir); err != nil {
		return errors.Join(fmt.Errorf("embedded broker: %w", err), b.Close())
	}
	if b.Repaired != nil {
		cfg.Log.Warn("the broker was not stopped properly last time; its folder is repaired", "repair", b.Repaired.String())
	}
	return nil
}

func (b *Broker) start(ctx context.Context, cfg Config) error {
	// No client is let in before everything is set up.
	ready := make(chan struct{})
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("provstream-embedded"),
		kfake.MaxVersions(versions()),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			l, err := net.Listen(network, cfg.Listen)
			if err != nil {
				return nil, err
			}
			return gate{l, ready}, nil
		}),
		kfake.WithLogger(logger{cfg.Log}),
		kfake.BrokerConfigs(map[string]string{
			"log.cleaner.backoff.ms": "315360000000", // never by itself: see compact.go
			// Topics that others create expire nothing: kfake also drops fresh
			// records that stand before an old-stamped one.
			"log.retention.ms": "-1",
		}),
	}
	if cfg.DataDir != "" {
		opts = append(opts, kfake.DataDir(cfg.DataDir))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return fmt.Errorf("embedded broker: %w", explain(err, cfg.Listen))
	}
	b.cluster = cluster
	if cfg.DataDir != "" {
		if err = compact(cluster, cfg.DataDir); err == nil {
			b.journal, err = watch(cluster, cfg.DataDir, cfg.Log)
		}
	}
	close(ready)
	if err != nil {
		return fmt.Errorf("embedded broker: %w", err)
	}
	b.Addr = cluster.ListenAddrs()[0]

	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), topology.Fresh())
	if err != nil {
		return fmt.Errorf("embedded broker: %w", err)
	}
	defer client.Close()
	return b.topics(ctx, kadm.NewClient(client), cfg)
}

// topics creates what is missing and refuses a folder whose topics are not what
// the configuration asks for.
func (b *Broker) topics(ctx context.Context, adm *kadm.Client, cfg Config) error {
	spec := topology.Spec{
		Prefix: cfg.Prefix, Partitions: cfg.Partitions, Replication: 1,
		// Records of a past year must not expire at birth.
		Hooks: true, HookRetention: -1, HookCreateTime: true,
	}
	if spec.Partitions == 0 {
		spec.Partitions = DefaultPartitions
		rows, err := topology.List(ctx, adm, cfg.Prefix)
		if err != nil {
			return fmt.Errorf("embedded broker: %w", err)
		}
		for _, row := range rows {
			if row.Topic == cfg.Prefix+topics.Steps {
				spec.Partitions = int32(row.Partitions)
			}
		}
	}
	if _, err := topology.Create(ctx, adm, spec); err != nil {
		return fmt.Errorf("embedded broker: %w", err)
	}
	problems, err := topology.Check(ctx, adm, spec)
	if err != nil {
		return fmt.Errorf("embedded broker: %w", err)
	}
	var errs []error
	for _, p := range problems {
		if p.Severity == topology.Error {
			errs = append(errs, fmt.Errorf("embedded broker: data folder %s: %s: %s", cfg.DataDir, p.Topic, p.What))
		}
	}
	if len(errs) != 0 {
		return errors.Join(append(errs, errors.New("give the partition count the folder was made with, or another folder"))...)
	}
	return nil
}

// Close stops the broker; with a data folder it writes what the next start
// needs. It is safe to call twice.
func (b *Broker) Close() error {
	b.once.Do(func() {
		if b.cluster != nil {
			b.cluster.Close()
			if b.journal != nil {
				b.err = errors.Join(b.journal.close(), markClosed(b.dir))
			}
		}
		b.err = errors.Join(b.err, b.unlock())
	})
	return b.err
}

// versions are the requests that the broker offers: those of the Kafka that kfake
// stands for, without DescribeTopicPartitions. kfake answers that one with null
// for the eligible leader replicas, which Java's AdminClient does not survive;
// where it is not offered clients ask with Metadata.
func versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.DescribeTopicPartitions), -1)
	return v
}

// gate is a listener that accepts nobody before it is opened.
type gate struct {
	net.Listener
	open <-chan struct{}
}

func (g gate) Accept() (net.Conn, error) {
	<-g.open
	return g.Listener.Accept()
}

func checkListen(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("embedded broker: listen address %q: %w; give host:port", addr, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("embedded broker: listen address %q names no host: the broker advertises the address it is bound to, "+
			"so give the one that clients reach, such as 127.0.0.1:%s", addr, port)
	}
	return nil
}

// explain adds the cure to errors of kfake's start.
func explain(err error, listen string) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "listen" {
		return fmt.Errorf("listen on %s: %w; is another broker running? give another address", listen, err)
	}
	return err
}

// logger hands kfake's warnings and errors to slog. Its chatter is dropped.
type logger struct{ log *slog.Logger }

func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.log.Error(fmt.Sprintf(format, args...), "from", "kfake")
	case kfake.LogLevelWarn:
		l.log.Warn(fmt.Sprintf(format, args...), "from", "kfake")
	}
}
