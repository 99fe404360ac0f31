// Package signer is the last of the three services: it reads unsigned DAGs from
// prov.runs and coverage records from prov.coverage, and writes signed DAGs and
// signed heads of the logs that both stand in.
//
// What it makes is package evidence's, which is pure. This package is the shell:
// one task for each input partition owns that partition's log, restores it from
// the newest committed checkpoint, and in each transaction appends what was read
// and produces the signed DAGs and one checkpoint. Leaf i of the log of
// prov.runs/p is its i-th committed record, and record i of prov.dags/p is leaf
// i; so every head that was ever signed, also by a transaction that was aborted
// later, is a prefix of one tree.
//
// It is the only service that opens a private key.
package signer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/topics"
)

// Service is the service's name in groups, transactional ids and metrics.
const Service = "signer"

// Config of the service.
type Config struct {
	kafka.Config
	// KeyDir is the key directory; it is read again when it changes.
	KeyDir string
	// Ring, if not nil, takes the place of KeyDir: keys in memory, for programs
	// that run the services in one process.
	Ring *keys.Ring
	// Registerer gets the metrics; nil keeps none.
	Registerer prometheus.Registerer
	// Health is told of the service's state; nil is told nothing.
	Health *kafka.Health
}

// Run is the service. It returns nil when ctx has ended, or an error that
// coming back does not cure.
func Run(ctx context.Context, cfg Config) error {
	cfg.Service = Service
	cfg.Config = cfg.Config.WithDefaults()
	m := newMetrics(cfg.Registerer)
	ring, err := newKeyring(cfg, m)
	if err != nil {
		return fmt.Errorf("signer: %w", err)
	}
	return kafka.RunService(ctx, cfg.Config, cfg.Registerer, cfg.Health, kafka.LoopSpec{Topics: []string{topics.Runs, topics.Coverage}},
		func(c *kafka.Cluster) (kafka.Parts, error) {
			s := &service{cfg: cfg, cluster: c, ring: ring, metrics: m}
			return kafka.Parts{Open: s.open, Beside: ring.watch}, nil
		})
}

// service is one life of the signer: what its tasks share.
type service struct {
	cfg     Config
	cluster *kafka.Cluster
	ring    *keyring
	metrics *metrics
}

// keyCheck is how often the key directory is looked at for a change.
const keyCheck = time.Second

// keyring is the ring in use. A changed directory that cannot be loaded leaves
// the old ring in use and is told in the log; keys are replaced by rename, so
// there is no half-written one to meet.
type keyring struct {
	dir     string
	log     *slog.Logger
	metrics *metrics

	mu      sync.Mutex
	ring    *keys.Ring
	stamp   string
	checked time.Time
}

func newKeyring(cfg Config, m *metrics) (*keyring, error) {
	if cfg.Ring != nil {
		m.keys(cfg.Ring.Public())
		return &keyring{ring: cfg.Ring}, nil
	}
	if cfg.KeyDir == "" {
		return nil, errors.New("--keys: name the key directory; `provctl keys new` makes one")
	}
	k := &keyring{dir: cfg.KeyDir, log: cfg.Logger, metrics: m}
	var err error
	if k.stamp, err = keys.Stamp(k.dir); err != nil {
		return nil, err
	}
	if k.ring, err = keys.Load(k.dir); err != nil {
		return nil, err
	}
	m.keys(k.ring.Public())
	return k, nil
}

// watch looks at the directory also while there is nothing to sign: whoever has
// changed it is waiting to be told.
func (k *keyring) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(keyCheck):
			k.current()
		}
	}
}

// current is the ring to sign with now.
func (k *keyring) current() *keys.Ring {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dir == "" || time.Since(k.checked) < keyCheck {
		return k.ring
	}
	k.checked = time.Now()
	stamp, err := keys.Stamp(k.dir)
	if err == nil && stamp == k.stamp {
		return k.ring
	}
	var ring *keys.Ring
	if err == nil {
		ring, err = keys.Load(k.dir)
	}
	if err != nil {
		k.metrics.reloads.WithLabelValues("refused").Inc()
		k.log.Error("the key directory changed and cannot be loaded; the keys loaded before stay in use", "error", err)
		return k.ring
	}
	k.ring, k.stamp = ring, stamp
	k.metrics.reloads.WithLabelValues("loaded").Inc()
	k.metrics.keys(ring.Public())
	k.log.Info("keys loaded again", "dir", k.dir, "log_key", ring.Log().ID)
	return k.ring
}
