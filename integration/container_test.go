package integration

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/generate"
	"provstream/internal/kafkatest"
	"provstream/internal/topology"
)

// TestContainer runs the pipeline against Kafka in a container, and kills and
// starts that container in the middle. The image is KAFKA_IMAGE, by default
// apache/kafka:4.2.0; scripts/kafka-image builds one where it cannot be pulled.
func TestContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: starts a container; not with -short")
	}
	c, broker := container1(t)
	d := deploy(t, c, soon())
	startAll(t, d)
	sent := make(chan error, 1)
	go func() {
		sent <- d.Feed(t.Context(), generate.Config{Seed: 21, Sessions: 60}, 400, func() {})
	}()
	time.Sleep(3 * time.Second)
	kill := 0 * time.Second
	if err := broker.Stop(t.Context(), &kill); err != nil { // SIGKILL at once
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	// What was on its way while the broker was away may be missing: some sessions
	// may have lost their sessionEnd.
	if o := finish(t, c, d, 5*time.Second); len(o.DAGs) < 30 {
		t.Errorf("%d DAGs of 60 sessions", len(o.DAGs))
	}
}

// container1 starts a one-node cluster in a container, or skips the test.
func container1(t *testing.T) (*kafkatest.Cluster, *testcontainers.DockerContainer) {
	t.Helper()
	// The reaper's image is one more to pull; CleanupContainer does its work
	// unless the test process is killed.
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	if os.Getenv("TESTCONTAINERS_HOST_OVERRIDE") == "" {
		t.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	}
	if _, err := os.Stat("/var/run/docker.sock"); err != nil && os.Getenv("DOCKER_HOST") == "" {
		t.Skip("SKIPPED: no Docker engine: neither /var/run/docker.sock nor DOCKER_HOST")
	}
	provider, err := testcontainers.NewDockerProvider()
	if err == nil {
		err = provider.Health(t.Context())
	}
	if err != nil {
		t.Skipf("SKIPPED: the Docker engine does not answer: %v", err)
	}
	image := os.Getenv("KAFKA_IMAGE")
	if image == "" {
		image = "apache/kafka:4.2.0"
	}
	// A fixed port on the host stays the same when the container starts again.
	port, err := kafkatest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	broker := fmt.Sprintf("127.0.0.1:%d", port)
	inside := network.MustParsePort("9092/tcp")
	settings := map[string]string{
		"KAFKA_NODE_ID":                                  "1",
		"KAFKA_PROCESS_ROLES":                            "broker,controller",
		"KAFKA_CONTROLLER_QUORUM_VOTERS":                 "1@localhost:9093",
		"KAFKA_LISTENERS":                                "PLAINTEXT://:9092,INTERNAL://:29092,CONTROLLER://:9093",
		"KAFKA_ADVERTISED_LISTENERS":                     "PLAINTEXT://" + broker + ",INTERNAL://localhost:29092",
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":           "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"KAFKA_INTER_BROKER_LISTENER_NAME":               "INTERNAL",
		"KAFKA_CONTROLLER_LISTENER_NAMES":                "CONTROLLER",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":         "1",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":            "1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS":         "0",
		"KAFKA_BROKER_SESSION_TIMEOUT_MS":                "1500",
		"KAFKA_BROKER_HEARTBEAT_INTERVAL_MS":             "500",
		"KAFKA_HEAP_OPTS":                                "-Xms256m -Xmx512m",
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ctr, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts("9092/tcp"),
		testcontainers.WithEnv(settings),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{inside: []network.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: fmt.Sprint(port)}}}
		}),
		testcontainers.WithWaitStrategyAndDeadline(2*time.Minute, wait.ForNop(func(ctx context.Context, _ wait.StrategyTarget) error {
			return answers(ctx, broker)
		})),
	)
	testcontainers.CleanupContainer(t, ctr)
	if err != nil {
		if os.Getenv("KAFKA_IMAGE") == "" {
			t.Skipf("SKIPPED: %s cannot be had: %v; name an image in KAFKA_IMAGE (scripts/kafka-image builds one)", image, err)
		}
		t.Fatal(err)
	}
	c := &kafkatest.Cluster{Brokers: []string{broker}, Partitions: 4, Opts: []kgo.Opt{kgo.SeedBrokers(broker)}}
	adm := kadm.NewClient(c.Client(t, topology.Fresh()))
	_, err = topology.Create(ctx, adm, topology.Spec{Partitions: 4, Replication: 1, Hooks: true, HookRetention: -1, HookCreateTime: true})
	if err != nil {
		t.Fatal(err)
	}
	return c, ctr
}

// answers returns when the broker answers a Kafka request: the log, which also
// has what was before a restart, would say so too soon.
func answers(ctx context.Context, broker string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		if err = cl.Ping(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
