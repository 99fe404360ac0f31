// Package bench measures the pipeline: how fast it drains a backlog to the last
// signed DAG, what each service uses while it does, what an envelope costs on
// each topic, and how long a session waits for its signed DAG under a given
// load.
//
// Each service, and the embedded broker, runs as a process of its own (the
// same binary again, see [Child]), so that CPU and memory are the kernel's
// figures for that service and nothing else. The bench itself only loads and
// watches: while the services drain it asks for offsets, nothing more.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/fleet"
	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/load"
	"provstream/internal/pipeline"
	"provstream/internal/topics"
	"provstream/internal/topology"
	"provstream/internal/window"
	"provstream/verify"
)

// Config of a measurement.
type Config struct {
	// Flags name the cluster; without brokers an embedded one is started.
	Flags kafka.Flags
	// Source and Copies are the backlog.
	Source fleet.Source
	Copies fleet.Copies

	Partitions     int32
	Replication    int16
	Window         window.Config
	Tolerance      time.Duration
	NoTransactions bool
	Disk           bool   // the embedded broker has a folder, not memory
	Compression    string // of the hook topics
	Written        string // compression of what the services write; "" is their default
	PprofDir       string
	// Warm, if not 0, is how many copies the services drain first, in a deployment
	// of its own. Their processes go on, and the measurement begins with warm ones.
	Warm int
	// OneProcess runs the three services in one process, as `provctl up` does.
	OneProcess bool
	// Command starts a child: its last argument is the configuration.
	Command []string
	// Delete removes the topics from a given cluster in the end.
	Delete bool
	// Pids are services that run already, by name: they are watched, and none is
	// started. "broker" is watched beside whatever runs.
	Pids map[string]int

	// Rate, if not 0, measures latency instead: records a second, for Duration.
	Rate     float64
	Duration time.Duration

	Stderr   io.Writer
	Progress func(format string, args ...any)
}

// Watches is true when the services are not the measurement's own.
func (cfg *Config) Watches() bool {
	_, ofBroker := cfg.Pids[broker]
	return len(cfg.Pids) > 1 || len(cfg.Pids) == 1 && !ofBroker
}

// Result of one measurement. Figures by service have the service's name, and
// "broker" where the broker's process is known.
type Result struct {
	Records      int64   `json:"records"`
	Bytes        int64   `json:"value_bytes"`
	Runs         int     `json:"runs"`
	DAGs         int64   `json:"dags"`
	Seconds      float64 `json:"seconds"`
	EnvelopesPS  float64 `json:"envelopes_per_s"`
	Transactions bool    `json:"transactions"`

	CPU      map[string]float64 `json:"cpu_us"`      // µs a record
	RSS      map[string]int64   `json:"rss_bytes"`   // peak
	Allocs   map[string]float64 `json:"allocs"`      // a record
	AllocB   map[string]float64 `json:"alloc_bytes"` // a record
	PerTopic map[string]int64   `json:"bytes"`       // on the brokers' disks, hook topics together
	Latency  *Latency           `json:"latency_ms,omitempty"`
}

var services = []string{pipeline.Ingest, pipeline.Aggregator, pipeline.Signer}

// together is the name of the process that runs all services.
const together = "services"

// session is one measurement under way.
type session struct {
	cfg      Config
	dir      string
	children []*child
	cluster  *kafka.Cluster
	keyDir   string
	result   Result
}

// Run measures once. Everything that it makes is gone when it returns, topics on
// a given cluster included.
func Run(ctx context.Context, cfg Config) (res Result, err error) {
	if cfg.Progress == nil {
		cfg.Progress = func(string, ...any) {}
	}
	s := &session{cfg: cfg, result: Result{Transactions: !cfg.NoTransactions}}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if err := s.prepare(ctx); err != nil {
		return res, err
	}
	if cfg.Rate > 0 {
		err = s.latency(ctx)
	} else {
		err = s.drain(ctx)
	}
	return s.result, err
}

// prepare starts the broker and makes topics and keys.
func (s *session) prepare(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "provstream-bench-"); err != nil {
		return err
	}
	if len(s.cfg.Flags.Brokers) == 0 {
		s.cfg.Progress("starting the broker")
		dataDir := ""
		if s.cfg.Disk {
			dataDir = filepath.Join(s.dir, "kafka")
		}
		c, err := startChild(ctx, s.cfg.Command, ChildConfig{
			Name: broker, DataDir: dataDir, Partitions: s.cfg.Partitions, Prefix: s.cfg.Flags.Prefix, PprofDir: s.cfg.PprofDir,
		}, s.cfg.Stderr)
		if err != nil {
			return err
		}
		s.children = append(s.children, c)
		var addr string
		if err := c.out.Decode(&addr); err != nil {
			return fmt.Errorf("the broker has ended: %w", err)
		}
		s.cfg.Flags.Brokers = []string{addr}
	} else if err := s.topics(ctx); err != nil {
		return err
	}
	if s.cluster, err = kafka.Open(ctx, s.cfg.Flags); err != nil {
		return err
	}
	s.keyDir = filepath.Join(s.dir, "keys")
	return newKeys(s.keyDir)
}

// topics makes the deployment on a given cluster.
func (s *session) topics(ctx context.Context) error {
	cl, err := s.cfg.Flags.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	s.cfg.Progress("creating topics")
	_, err = topology.Create(ctx, kadm.NewClient(cl), topology.Spec{
		Prefix: s.cfg.Flags.Prefix, Partitions: s.cfg.Partitions, Replication: max(s.cfg.Replication, 1),
		Hooks: true, HookCreateTime: true, HookRetention: -1,
	})
	return err
}

func newKeys(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for file, use := range map[string]verify.Use{keys.LogFile: verify.UseLog, keys.DAGFile: verify.UseDAG} {
		k, err := keys.Generate(use, "")
		if err == nil {
			err = keys.WritePrivate(filepath.Join(dir, file), k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts the services, unless others are watched. Processes that are there
// already begin again, with new clients, in the session's deployment.
func (s *session) start(ctx context.Context) error {
	if s.cfg.Watches() {
		return nil
	}
	if running := s.services(); len(running) > 0 {
		return tell(running, "start "+s.cfg.Flags.Prefix)
	}
	names := services
	if s.cfg.OneProcess {
		names = []string{together}
	}
	for _, name := range names {
		c, err := startChild(ctx, s.cfg.Command, ChildConfig{
			Name: name, Brokers: s.cfg.Flags.Brokers, Prefix: s.cfg.Flags.Prefix, KeyDir: s.keyDir, Window: s.cfg.Window,
			NoTransactions: s.cfg.NoTransactions, Compression: s.cfg.Written, Tolerance: s.cfg.Tolerance, PprofDir: s.cfg.PprofDir,
		}, s.cfg.Stderr)
		if err != nil {
			return err
		}
		s.children = append(s.children, c)
	}
	return nil
}

// services are the processes that run services.
func (s *session) services() []*child {
	return slices.DeleteFunc(slices.Clone(s.children), func(c *child) bool { return c.name == broker })
}

func tell(children []*child, line string) error {
	for _, c := range children {
		if _, err := c.tell(line); err != nil {
			return err
		}
	}
	return nil
}

// usage is what every watched process has used so far.
func (s *session) usage() (map[string]Usage, error) {
	out := map[string]Usage{}
	for _, c := range s.children {
		u, err := c.tell("usage")
		if err != nil {
			return nil, err
		}
		out[c.name] = u
	}
	for name, pid := range s.cfg.Pids {
		u, err := procUsage(pid)
		if err != nil {
			return nil, err
		}
		out[name] = u
	}
	return out, nil
}

// account sets the figures by service from two looks.
func (s *session) account(before, after map[string]Usage, records int64) {
	r := &s.result
	r.CPU, r.RSS, r.Allocs, r.AllocB = map[string]float64{}, map[string]int64{}, map[string]float64{}, map[string]float64{}
	for name, a := range after {
		b := before[name]
		r.CPU[name] = float64((a.CPU - b.CPU).Microseconds()) / float64(records)
		r.RSS[name] = a.MaxRSS
		if a.Mallocs > 0 {
			r.Allocs[name] = float64(a.Mallocs-b.Mallocs) / float64(records)
			r.AllocB[name] = float64(a.AllocB-b.AllocB) / float64(records)
		}
	}
}

// drain loads the backlog, starts the services and waits for the last DAG.
func (s *session) drain(ctx context.Context) error {
	if s.cfg.Warm > 0 {
		if err := s.warm(ctx); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	before, err := s.usage() // of the broker, which has worked already
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	end, after, err := s.watch(ctx)
	if err != nil {
		return err
	}
	r := &s.result
	r.Seconds = end.Sub(begin).Seconds()
	r.EnvelopesPS = float64(r.Records) / r.Seconds
	s.account(before, after, r.Records)
	return s.sizes(ctx)
}

// warm has the services drain a backlog in a deployment of its own: the time of a
// log that was read to its end is the present, and records of the past would come
// late after it.
func (s *session) warm(ctx context.Context) (err error) {
	w := &session{cfg: s.cfg, children: s.children, keyDir: s.keyDir}
	defer func() { s.children = w.children }()
	w.cfg.Flags.Prefix += "warm."
	w.cfg.Copies.N, w.cfg.Copies.Salt = s.cfg.Warm, "warm"
	if err := w.topics(ctx); err != nil {
		return err
	}
	defer func() {
		w.cluster = s.cluster // its own is closed by now
		err = errors.Join(err, w.deleteTopics(context.WithoutCancel(ctx)))
	}()
	if w.cluster, err = kafka.Open(ctx, w.cfg.Flags); err != nil {
		return err
	}
	defer w.cluster.Close()
	if err := w.load(ctx); err != nil {
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	if _, _, err := w.watch(ctx); err != nil {
		return err
	}
	return tell(w.services(), "stop")
}

func (s *session) load(ctx context.Context) error {
	sender, err := load.NewSender(s.cfg.Flags, load.Options{CreateTopics: true, Compression: s.cfg.Compression})
	if err != nil {
		return err
	}
	defer sender.Close()
	err = s.cfg.Copies.Each(s.cfg.Source, func(r *fleet.Record) error {
		s.result.Records++
		s.result.Bytes += int64(len(r.Value))
		if s.result.Records%20000 == 0 {
			s.cfg.Progress("loading: %d records", s.result.Records)
		}
		return sender.Send(ctx, r)
	})
	if err != nil {
		return err
	}
	return sender.Flush(ctx)
}

// settle is how long the end offsets of prov.dags must stand still before the
// bench looks closely whether everything is done.
const settle = 1500 * time.Millisecond

// watch returns when the last DAG was signed, and what was used by then.
func (s *session) watch(ctx context.Context) (end time.Time, after map[string]Usage, err error) {
	track := pipeline.Track(s.cluster)
	var last int64 = -1
	for {
		dags, err := s.dags(ctx)
		if err != nil {
			return end, nil, err
		}
		now := time.Now()
		if dags != last {
			last, end = dags, now
			if after, err = s.usage(); err != nil {
				return end, nil, err
			}
			s.cfg.Progress("draining: prov.dags is at %d", dags)
		}
		if now.Sub(end) > settle {
			state, err := track.State(ctx)
			if err != nil {
				return end, nil, err
			}
			if now, err := s.dags(ctx); state.Drained() && err == nil && now == last {
				s.result.Runs = track.Runs()
				count := func(*kgo.Record) error { s.result.DAGs++; return nil }
				return end, after, pipeline.Follow(s.cluster, topics.DAGs).Read(ctx, count)
			}
			if _, err := s.usage(); err != nil { // a child that has ended never gets there
				return end, nil, err
			}
		}
		select {
		case <-ctx.Done():
			return end, nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dags counts the offsets of prov.dags up to the last stable ones.
func (s *session) dags(ctx context.Context) (int64, error) {
	ends, err := s.cluster.Admin.ListCommittedOffsets(ctx, s.cfg.Flags.Topic(topics.DAGs))
	if err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}

// sizes reads what each topic takes on the brokers' disks.
func (s *session) sizes(ctx context.Context) error {
	rows, err := topology.List(ctx, s.cluster.Admin, s.cfg.Flags.Prefix)
	if err != nil {
		return err
	}
	s.result.PerTopic = map[string]int64{}
	for _, row := range rows {
		name := row.Topic[len(s.cfg.Flags.Prefix):]
		if kafka.IsHookTopic("", name) && name != topics.Decisions {
			name = topics.HookPrefix + "*"
		}
		if row.Bytes >= 0 {
			s.result.PerTopic[name] += row.Bytes
		}
	}
	return nil
}

// close ends the children, the services before the broker, and deletes what was
// made on a given cluster.
func (s *session) close(ctx context.Context) error {
	var errs []error
	if s.cluster != nil {
		defer s.cluster.Close()
	}
	for _, c := range slices.Backward(s.children) {
		errs = append(errs, c.stop())
	}
	if s.cluster != nil && s.cfg.Delete {
		errs = append(errs, s.deleteTopics(context.WithoutCancel(ctx)))
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

func (s *session) deleteTopics(ctx context.Context) error {
	rows, err := topology.List(ctx, s.cluster.Admin, s.cfg.Flags.Prefix)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rows))
	for _, r := range rows {
		names = append(names, r.Topic)
	}
	_, err = s.cluster.Admin.DeleteTopics(ctx, names...)
	return err
}
