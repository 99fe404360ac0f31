package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"provstream/internal/embedded"
	"provstream/internal/kafka"
	"provstream/internal/pipeline"
	"provstream/internal/window"
)

// Usage is what a process has used up to now.
type Usage struct {
	CPU      time.Duration `json:"cpu"`
	MaxRSS   int64         `json:"max_rss"` // bytes
	Mallocs  uint64        `json:"mallocs"`
	AllocB   uint64        `json:"alloc_bytes"`
	GCCycles uint64        `json:"gc_cycles"`
}

func ownUsage() Usage {
	var u Usage
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) == nil {
		u.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		u.MaxRSS = int64(ru.Maxrss) * maxRSSUnit
	}
	// The kernel counts the parent's memory up to exec into ru_maxrss.
	if p, err := procUsage(os.Getpid()); err == nil {
		u.MaxRSS = p.MaxRSS
	}
	// Read without stopping the world: the parent asks often.
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	u.Mallocs = samples[0].Value.Uint64() + samples[1].Value.Uint64()
	u.AllocB, u.GCCycles = samples[2].Value.Uint64(), samples[3].Value.Uint64()
	return u
}

// broker is the name of the child that runs the embedded broker.
const broker = "broker"

// ChildConfig is what a child process is told, as one JSON argument.
type ChildConfig struct {
	Name           string // a service, or broker, or services
	Brokers        []string
	Prefix         string
	KeyDir         string
	Window         window.Config
	NoTransactions bool
	Compression    string
	Tolerance      time.Duration
	DataDir        string // of the broker; "" is in memory
	Partitions     int32
	PprofDir       string
}

// Child is the life of a child process: it says on stdout, a JSON line each,
// where it is (the broker) and, whenever a line comes in, what it has used. The
// line "stop" ends the services, "start PREFIX" begins with new ones. It ends
// when stdin does, so no child outlives its parent.
func Child(ctx context.Context, config string, stdin io.Reader, stdout, stderr io.Writer) error {
	var cfg ChildConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return fmt.Errorf("child: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := profile(cfg.PprofDir, cfg.Name)
	if err != nil {
		return err
	}
	out := json.NewEncoder(stdout)
	var life func() error
	if cfg.Name == broker {
		// It warns of every request that takes long on a busy machine.
		log := logger(stderr, slog.LevelError, cfg.Name)
		b, err := embedded.Start(ctx, embedded.Config{DataDir: cfg.DataDir, Partitions: cfg.Partitions, Prefix: cfg.Prefix, Log: log})
		if err != nil {
			return err
		}
		_ = out.Encode(b.Addr)
		life = b.Close
	} else {
		life = cfg.run(ctx, stderr)
	}
	in := bufio.NewScanner(stdin)
	for in.Scan() {
		switch word, prefix, _ := strings.Cut(in.Text(), " "); word {
		case "stop":
			err = life()
			life = func() error { return nil }
		case "start":
			cfg.Prefix = prefix
			life = cfg.run(ctx, stderr)
		}
		if err == nil {
			err = out.Encode(ownUsage())
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, life(), stop())
}

func logger(w io.Writer, level slog.Level, name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})).With("service", name)
}

// run starts the services that the child is; the function returned stops them.
func (cfg ChildConfig) run(ctx context.Context, stderr io.Writer) func() error {
	p := pipeline.New(ctx, pipeline.Config{
		Flags: kafka.Flags{Brokers: cfg.Brokers, Prefix: cfg.Prefix}, KeyDir: cfg.KeyDir, Window: cfg.Window,
		ClockTolerance: cfg.Tolerance, NoTransactions: cfg.NoTransactions, Compression: cfg.Compression, Instance: "bench",
		Logger: logger(stderr, slog.LevelWarn, cfg.Name),
	})
	if cfg.Name == together {
		p.Start(services...)
	} else {
		p.Start(cfg.Name)
	}
	go func() {
		<-p.Done()
		if err := p.Err(); err != nil {
			fmt.Fprintln(stderr, err)
			os.Exit(1) // the parent sees its stdout close
		}
	}()
	return p.Stop
}

// profile starts a CPU profile when dir is set; stop writes it and the heap.
func profile(dir, name string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(filepath.Join(dir, name+".cpu.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		heap, err := os.Create(filepath.Join(dir, name+".heap.pprof"))
		if err == nil {
			err = errors.Join(pprof.Lookup("allocs").WriteTo(heap, 0), heap.Close())
		}
		return errors.Join(err, cpu.Close())
	}, nil
}

// child is a running child process as its parent sees it.
type child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
}

// startChild starts command with the configuration as its last argument.
func startChild(ctx context.Context, command []string, cfg ChildConfig, stderr io.Writer) (*child, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], string(text))...)
	cmd.Stderr = stderr
	// The end of stdin is the signal to stop; a kill comes only when that does
	// not help.
	cmd.WaitDelay = 20 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	return &child{name: cfg.Name, cmd: cmd, in: in, out: json.NewDecoder(out)}, nil
}

// tell writes a line to the child, and returns what it has used when that is done.
func (c *child) tell(line string) (u Usage, err error) {
	if _, err = io.WriteString(c.in, line+"\n"); err == nil {
		err = c.out.Decode(&u)
	}
	if err != nil {
		err = fmt.Errorf("%s has ended: %w", c.name, err)
	}
	return u, err
}

func (c *child) stop() error {
	_ = c.in.Close() // it may be gone already; Wait tells
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
