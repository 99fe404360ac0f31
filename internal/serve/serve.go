// Package serve is what the mains of the three services have in common: the
// command line's parser, the logger, the stop by signal, and the listener with
// metrics and health.
//
// The listener answers
//
//	/metrics   Prometheus
//	/healthz   200 while the process works: restart it otherwise
//	/ready     200 while the service does its work; 503 while it starts, restores, catches up or stops
//	/status    a page for people
//
// It binds to loopback unless told otherwise; TLS and passwords come with a web
// configuration file of prometheus/exporter-toolkit.
package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"

	"provstream/internal/kafka"
)

// Flags of every service.
type Flags struct {
	ListenMetrics string `help:"Address of /metrics, /healthz, /ready and /status; none when empty." default:"${metrics_address}" env:"PROVSTREAM_LISTEN_METRICS"`
	WebConfig     string `help:"Web configuration file of prometheus/exporter-toolkit: TLS and passwords of that address." placeholder:"FILE" env:"PROVSTREAM_WEB_CONFIG"`
	LogFormat     string `help:"text or json." default:"text" env:"PROVSTREAM_LOG_FORMAT"`
	LogLevel      string `help:"debug, info, warn or error." default:"info" env:"PROVSTREAM_LOG_LEVEL"`
	Probe         bool   `help:"Ask /ready of the instance that runs at --listen-metrics and exit: status 0 when it is ready. For health checks of containers." env:"-"`
	PrintConfig   bool   `help:"Print the configuration as JSON and exit." env:"-"`
}

// Check adds the faults of the flags.
func (f Flags) Check(faults *kafka.Faults) {
	if f.LogFormat != "text" && f.LogFormat != "json" {
		faults.Add(fmt.Errorf("--log-format: %q is neither text nor json", f.LogFormat))
	}
	if _, err := f.level(); err != nil {
		faults.Add(err)
	}
	if f.ListenMetrics != "" {
		if _, _, err := net.SplitHostPort(f.ListenMetrics); err != nil {
			faults.Add(fmt.Errorf("--listen-metrics: %q is no host:port", f.ListenMetrics))
		}
	}
	if f.WebConfig != "" {
		if err := web.Validate(f.WebConfig); err != nil {
			faults.Add(fmt.Errorf("--web-config: %w", err))
		}
	}
}

func (f Flags) level() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(f.LogLevel)); err != nil {
		return l, fmt.Errorf("--log-level: %q is none of debug, info, warn, error", f.LogLevel)
	}
	return l, nil
}

// Logger as the flags say.
func (f Flags) Logger(w io.Writer) *slog.Logger {
	level, _ := f.level()
	o := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// parse fills a struct of flags from a command line. done says that the command
// line asked for help only. Numbers and switches that are none become faults, which
// are told with those of the other flags.
func parse(name, description, metricsAddress string, cli any, args []string, stdout, stderr io.Writer, faults *kafka.Faults) (done bool, err error) {
	standard := kong.NewRegistry().RegisterDefaults()
	parser, err := kong.New(cli,
		kong.KindMapper(reflect.Int, lenient{standard.ForType(reflect.TypeFor[int]()), faults}),
		kong.KindMapper(reflect.Int64, lenient{standard.ForType(reflect.TypeFor[int64]()), faults}),
		kong.KindMapper(reflect.Bool, lenientSwitch{lenient{standard.ForType(reflect.TypeFor[bool]()), faults}}),
		kong.Name(name),
		kong.Description(description),
		kong.DefaultEnvars("PROVSTREAM"),
		kong.Vars{"metrics_address": metricsAddress},
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { done = true }),
	)
	if err != nil {
		return false, err
	}
	_, err = parser.Parse(args)
	if done {
		return true, nil
	}
	return false, err
}

// lenient takes what its mapper refuses for a fault, and goes on.
type lenient struct {
	kong.Mapper
	faults *kafka.Faults
}

// Decode implements [kong.Mapper].
func (m lenient) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if err := m.Mapper.Decode(ctx, target); err != nil {
		m.faults.Add(fmt.Errorf("--%s: %w", ctx.Value.Name, err))
		if ctx.Value.HasDefault { // so that no fault of the value 0 is told beside it
			return m.Mapper.Decode(ctx.WithScanner(kong.Scan(ctx.Value.Default)), target)
		}
	}
	return nil
}

type lenientSwitch struct{ lenient }

// IsBool implements [kong.BoolMapper].
func (lenientSwitch) IsBool() bool { return true }

// Ready asks the instance that runs at --listen-metrics whether it is ready. An
// instance whose listener wants TLS or a password must be asked by other means.
func (f Flags) Ready(ctx context.Context) error {
	host, port, err := net.SplitHostPort(f.ListenMetrics)
	if err != nil {
		return fmt.Errorf("--listen-metrics: %q is no host:port", f.ListenMetrics)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/ready", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer resp.Body.Close()
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("probe: not ready: %s", strings.TrimSpace(string(why)))
	}
	return nil
}

// PrintConfig writes the flags as they were understood. Secrets are files, so
// there is none to print.
func PrintConfig(w io.Writer, flags any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(flags)
}

// Service is a service and its listener.
type Service struct {
	Name     string
	Flags    Flags
	Logger   *slog.Logger
	Registry *prometheus.Registry
	Health   *kafka.Health
}

// New makes the parts that the flags ask for.
func New(name string, f Flags, stderr io.Writer) *Service {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return &Service{Name: name, Flags: f, Logger: f.Logger(stderr), Registry: reg, Health: new(kafka.Health)}
}

// Run runs the service beside its listener until ctx ends and the service has
// stopped.
func (s *Service) Run(ctx context.Context, service func(context.Context) error) error {
	stop, err := s.listen()
	if err != nil {
		return err
	}
	defer stop()
	s.Logger.Info("starting", "service", s.Name, "metrics", s.Flags.ListenMetrics)
	err = service(ctx)
	s.Logger.Info("stopped", "service", s.Name)
	return err
}

func (s *Service) listen() (stop func(), err error) {
	if s.Flags.ListenMetrics == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", s.Flags.ListenMetrics)
	if err != nil {
		return nil, fmt.Errorf("--listen-metrics: %w", err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		addresses, systemd := []string{s.Flags.ListenMetrics}, false
		config := s.Flags.WebConfig
		err := web.Serve(l, server, &web.FlagConfig{WebListenAddresses: &addresses, WebSystemdSocket: &systemd, WebConfigFile: &config}, s.Logger)
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.Logger.Error("metrics listener", "error", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-done
	}, nil
}

// Handler is what the listener serves.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if why := s.Health.Status().NotReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /status", s.status)
	return mux
}

// heldLong is beyond what a transaction of ours may take, in seconds.
const heldLong = 15

func (s *Service) status(w http.ResponseWriter, _ *http.Request) {
	st := s.Health.Status()
	var b strings.Builder
	fmt.Fprintf(&b, "provstream %s\n\n", s.Name)
	state := "ready"
	if why := st.NotReady(); why != "" {
		state = "not ready: " + why
	}
	fmt.Fprintf(&b, "state         %s\n", state)
	fmt.Fprintf(&b, "partitions    %d open, %d opening\n", st.Open, st.Opening)
	fmt.Fprintf(&b, "transactions  %d committed, %d aborted or failed\n", st.Commits, st.Aborts)
	for _, name := range slices.Sorted(maps.Keys(st.Notes)) {
		fmt.Fprintf(&b, "%-13s %s\n", name, st.Notes[name])
	}
	if !st.LastCommit.IsZero() {
		fmt.Fprintf(&b, "last commit   %s\n", st.LastCommit.UTC().Format(time.RFC3339))
	}
	if st.LastError != "" {
		fmt.Fprintf(&b, "last error    %s %s\n", st.LastErrorAt.UTC().Format(time.RFC3339), st.LastError)
	}
	if len(st.Partitions) != 0 {
		slices.SortFunc(st.Partitions, func(x, y kafka.PartitionStatus) int {
			return cmp.Or(strings.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
		})
		fmt.Fprintf(&b, "\n%-48s %12s %10s %10s\n", "partition", "next offset", "lag", "seconds")
		for _, p := range st.Partitions {
			held := ""
			if p.HeldSeconds >= heldLong {
				held = fmt.Sprintf("  records wait behind a transaction that is open for %.0f s or more", p.HeldSeconds)
			}
			fmt.Fprintf(&b, "%-48s %12d %10d %10.0f%s\n", p.Topic+"/"+strconv.Itoa(int(p.Partition)), p.Next, p.Lag, p.LagSeconds, held)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, b.String())
}
