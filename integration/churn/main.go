// Command churn is the kill loop: it runs several instances of each service as
// processes against Apache Kafka, feeds them a generated fleet with faults at a
// steady rate, and kills, freezes and restarts services and brokers all the
// while. Then it lets the pipeline drain and checks that nothing was lost, nothing
// repeated and nothing is wrong:
//
//   - provctl reconcile, which shares no code with the windows and the DAGs;
//   - an undisturbed replay of prov.steps as recorded gives the records of
//     prov.runs, byte for byte;
//   - no id stands twice on an output topic, and no service ended by itself.
//
// With --network every instance reaches every broker by a link in this process,
// which is late, slow, cut or parted now and then.
//
// Without --brokers it starts three brokers of its own with scripts/kafka, and
// kills those too. It prints a report as JSON; exit status 1 says that something
// did not hold.
//
//	go run ./integration/churn --time 10m --kills 200 --seed 7 --report report.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/integration/processes"
	"provstream/internal/kafkatest"
	"provstream/internal/topology"
	"provstream/internal/window"
)

type flags struct {
	Time       time.Duration `help:"Disturb at least so long." default:"1m"`
	Kills      int           `help:"Disturb until so many SIGKILLs of services and brokers." default:"10"`
	Seed       uint64        `help:"Of fleet and disturbances; 0 takes one from the clock."`
	Rate       float64       `help:"Records a second." default:"300"`
	Instances  int           `help:"Of each service." default:"3"`
	Partitions int32         `help:"Of the partitioned topics." default:"6"`
	Pause      time.Duration `help:"Mean time between disturbances." default:"1500ms"`
	Brokers    string        `help:"An Apache Kafka that is there; its brokers are left alone. Without it three are started." placeholder:"HOST:PORT,…"`
	Network    bool          `help:"Also make the network between services and brokers bad now and then: late, slow, cut, parted. Needs brokers of its own."`
	Dir        string        `help:"Logs and keys; a temporary folder that is removed when all holds, else." placeholder:"DIR"`
	Report     string        `help:"Write the report here too." placeholder:"FILE"`
	Flag       []string      `help:"Further flag of a service, as service:--name=value." placeholder:"SERVICE:FLAG"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f flags
	kong.Parse(&f, kong.Name("churn"), kong.Description("Kills services and brokers while a fleet runs, and checks that nothing is lost, repeated or wrong."))
	report, err := run(ctx, f)
	if report != nil {
		out, _ := json.MarshalIndent(report, "", "  ")
		fmt.Println(string(out))
		if f.Report != "" {
			err = errors.Join(err, os.WriteFile(f.Report, append(out, '\n'), 0o644))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "churn:", err)
		os.Exit(2)
	}
	if len(report.Violations) != 0 {
		os.Exit(1)
	}
}

// trial is one run of the program.
type trial struct {
	flags
	rng        *rand.Rand
	log        func(format string, args ...any)
	cluster    *kafkatest.ApacheKafka // nil where the brokers are somebody else's
	deployment *processes.Deployment
	opts       []kgo.Opt
	client     *kgo.Client
	report     *report
	brokerBusy atomic.Bool // one broker at a time
	plumbing   *plumbing   // nil without --network
}

// windows are short, so that runs end while the loop runs.
func windows() window.Config {
	w := window.DefaultConfig()
	w.CompleteGrace, w.Grace, w.SealGrace = 500*time.Millisecond, 2*time.Second, 2*time.Second
	w.TurnIdle, w.SessionIdle, w.LateGrace = 20*time.Second, 25*time.Second, 3*time.Second
	w.IdleRetention = time.Hour
	return w
}

const sessionTimeout = 6 * time.Second // the least that brokers allow by default

func run(ctx context.Context, f flags) (*report, error) {
	if f.Seed == 0 {
		f.Seed = uint64(time.Now().UnixNano())
	}
	start := time.Now()
	t := &trial{flags: f, rng: rand.New(rand.NewPCG(f.Seed, 0))}
	t.log = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%7.1f  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	t.report = newReport(f)
	t.log("seed %d", f.Seed)
	cleanup, err := t.prepare(ctx)
	defer cleanup()
	if err != nil {
		return nil, err
	}
	if err := t.disturb(ctx); err != nil {
		return t.report, err
	}
	if err := t.drain(ctx); err != nil {
		return t.report, err
	}
	if err := t.check(ctx); err != nil {
		return t.report, err
	}
	t.report.Seconds = time.Since(start).Seconds()
	if len(t.report.Violations) == 0 && f.Dir == "" {
		_ = os.RemoveAll(t.deployment.Dir)
	} else {
		t.log("logs are in %s", t.deployment.Dir)
	}
	return t.report, nil
}

// prepare starts the cluster, makes topics and keys, and starts the services.
func (t *trial) prepare(ctx context.Context) (cleanup func(), err error) {
	cleanup = func() {}
	if t.Dir == "" {
		if t.Dir, err = os.MkdirTemp("", "churn-"); err != nil {
			return cleanup, err
		}
	} else if err := os.MkdirAll(t.Dir, 0o755); err != nil {
		return cleanup, err
	}
	brokers := t.Brokers
	if brokers == "" {
		if err := t.startBrokers(); err != nil {
			return cleanup, err
		}
		brokers = t.cluster.Brokers
	} else if t.Network {
		return cleanup, errors.New("--network: the brokers must be this program's own: leave --brokers out")
	}
	prefix := fmt.Sprintf("churn%d.", t.Seed)
	t.opts = []kgo.Opt{kgo.SeedBrokers(strings.Split(brokers, ",")...)}
	t.deployment = &processes.Deployment{
		Bin: t.Dir, Dir: t.Dir, Brokers: brokers, Prefix: prefix,
		Windows: windows(),
		Log:     t.log,
		Flags:   map[string][]string{"": {"--session-timeout=" + sessionTimeout.String()}},
	}
	if t.plumbing != nil {
		t.deployment.BrokersOf = t.plumbing.brokers
	}
	for _, f := range t.Flag {
		service, flag, _ := strings.Cut(f, ":")
		t.deployment.Flags[service] = append(t.deployment.Flags[service], flag)
	}
	cleanup = func() {
		t.deployment.Close()
		if t.client != nil {
			t.client.Close()
		}
		if t.plumbing != nil {
			t.plumbing.close()
		}
		if t.cluster != nil {
			if err := t.cluster.Wipe(); err != nil {
				t.log("%v", err)
			}
		}
	}
	t.log("building")
	if err := processes.Build(ctx, t.Dir); err != nil {
		return cleanup, err
	}
	if t.client, err = kgo.NewClient(append(t.opts, topology.Fresh())...); err != nil {
		return cleanup, err
	}
	adm := kadm.NewClient(t.client)
	nodes, err := adm.ListBrokers(ctx)
	if err != nil {
		return cleanup, err
	}
	t.report.Brokers = len(nodes)
	_, err = topology.Create(ctx, adm, topology.Spec{
		Prefix: prefix, Partitions: t.Partitions, Replication: int16(min(len(nodes), 3)),
		Hooks: true, HookPartitions: 3, HookRetention: -1, HookCreateTime: true,
	})
	if err != nil {
		return cleanup, err
	}
	if err := t.deployment.NewKeys(); err != nil {
		return cleanup, err
	}
	for _, service := range processes.Services {
		for i := range t.Instances {
			if _, err := t.deployment.Start(service, i); err != nil {
				return cleanup, err
			}
		}
	}
	t.log("%d instances of each service on %d brokers", t.Instances, len(nodes))
	return cleanup, nil
}

// ownBrokers is how many brokers are started.
const ownBrokers = 3

// startBrokers starts brokers that notice a dead broker and a dead producer sooner
// than by default.
func (t *trial) startBrokers() error {
	t.log("starting three brokers")
	settings := []string{
		"broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
	}
	port, err := kafkatest.FreePorts(ownBrokers, ownBrokers*len(processes.Services)*t.Instances)
	if err != nil {
		return err
	}
	if t.Network {
		if t.plumbing, err = lay(t.Instances, ownBrokers, port); err != nil {
			return err
		}
	}
	t.cluster, err = kafkatest.StartApacheKafkaOn(port, ownBrokers, func(node int) []string {
		if t.plumbing == nil {
			return settings
		}
		return append(t.plumbing.settings(port, node), settings...)
	})
	return err
}

// report is what the program prints.
type report struct {
	Seed       uint64  `json:"seed"`
	Seconds    float64 `json:"seconds"`
	Machine    string  `json:"machine"`
	Instances  int     `json:"instances_per_service"`
	Brokers    int     `json:"brokers"`
	Partitions int32   `json:"partitions"`

	Kills           map[string]int `json:"kills"` // by service, and brokers
	TotalKills      int            `json:"total_kills"`
	Freezes         int            `json:"freezes"` // SIGSTOP beyond the session timeout, then SIGCONT
	RollingRestarts int            `json:"rolling_restarts"`
	BrokerRestarts  int            `json:"broker_restarts"`
	LeaderMoves     int            `json:"leader_moves"`
	Network         map[string]int `json:"network,omitempty"` // faults of links by kind
	SlowestStop     float64        `json:"slowest_stop_seconds"`

	Sent         int64              `json:"records_sent"`
	Steps        int64              `json:"records_of_prov_steps"`
	DAGs         int64              `json:"dags"`
	Transactions map[string]float64 `json:"transactions"` // by service and result, as far as metrics lived
	Restored     float64            `json:"restored_records"`
	Restarts     float64            `json:"loop_restarts"`

	Reconcile  json.RawMessage `json:"reconcile,omitempty"`
	Violations []string        `json:"violations"`
}

func newReport(f flags) *report {
	return &report{
		Seed: f.Seed, Instances: f.Instances, Partitions: f.Partitions,
		Machine:      fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
		Kills:        make(map[string]int),
		Network:      make(map[string]int),
		Transactions: make(map[string]float64),
		Violations:   []string{},
	}
}

func (r *report) violation(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}
