// Package kafkatest gives tests a Kafka cluster with our topics.
//
//   - [Virtual] is kfake on an in-memory network. Inside testing/synctest time is
//     virtual too: an hour of silence is a test of milliseconds.
//   - [Loopback] is kfake on a loopback port, for tests that start processes.
//   - [Real] is Apache Kafka: the cluster that KAFKA_BROKERS names
//     (comma-separated host:port), or one that the test binary starts for itself
//     with scripts/kafka where KAFKATEST_START gives a number of brokers (1 or 3)
//     and the package's TestMain calls [Main]. Without either the test is skipped,
//     aloud.
//   - [Any] is Real where it is configured, else Loopback.
//
// Every test gets a prefix of its own, so tests on one real cluster do not see
// each other. Its topics and groups are deleted when the test ends.
package kafkatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/topology"
)

// Options of a cluster. The zero value is good for most tests.
type Options struct {
	Partitions int32       // of partitioned topics; 0 is 4
	Nodes      int         // of kfake: brokers; 0 is 3. A real cluster has what it has.
	Kfake      []kfake.Opt // further options of kfake
	NoTopics   bool        // leave the cluster empty
}

// Cluster is a cluster for one test.
type Cluster struct {
	Brokers    []string
	Prefix     string // of this test's topics; groups and transactional ids derive from it
	Partitions int32
	// Opts are what a client needs to reach the cluster, besides what the test
	// wants: the seed brokers and, for a virtual network, the dialer.
	Opts []kgo.Opt
	// Fake is the broker itself where it is kfake, for faults, leader moves and
	// compaction; nil where the cluster is real.
	Fake *kfake.Cluster
}

// Virtual starts kfake on a network in memory. Call it inside the bubble, with
// the bubble's t, where testing/synctest is used.
func Virtual(t testing.TB, o Options) *Cluster {
	t.Helper()
	t.Cleanup(func() { time.Sleep(2 * latency) }) // the bubble's time ends with the test: nothing may be under way
	network := new(kfake.VirtualNetwork)
	o.Kfake = append(o.Kfake, kfake.ListenFn(network.Listen), kfake.Ports(ports(o)...))
	return fake(t, o, kgo.Dialer(func(ctx context.Context, kind, host string) (net.Conn, error) {
		conn, err := network.DialContext(ctx, kind, host)
		if err != nil {
			return nil, err
		}
		return &pacedConn{Conn: conn}, nil
	}))
}

// A client that fetches again at once, as kgo does for some milliseconds where one
// topic among others has gone, would hold virtual time for ever: no timer could end
// that. So after so many fetches of a connection at one instant the next takes a while.
// Others take none: who waits for one under a mutex holds time too.
const (
	fetchesAtOnce = 200
	latency       = time.Millisecond
)

type pacedConn struct {
	net.Conn
	at      time.Time
	fetches int // at that time
}

func (c *pacedConn) Write(b []byte) (int, error) {
	// A request begins with its size in four bytes and its API key in two.
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:]) == uint16(kmsg.Fetch) {
		if now := time.Now(); !now.Equal(c.at) {
			c.at, c.fetches = now, 0
		}
		if c.fetches++; c.fetches > fetchesAtOnce {
			time.Sleep(latency)
		}
	}
	return c.Conn.Write(b)
}

// ports are what a virtual network needs, which has no free ports to give away.
func ports(o Options) []int {
	out := make([]int, nodes(o))
	for i := range out {
		out[i] = 9092 + i
	}
	return out
}

func nodes(o Options) int {
	if o.Nodes == 0 {
		return 3
	}
	return o.Nodes
}

// Loopback starts kfake on loopback.
func Loopback(t testing.TB, o Options) *Cluster {
	t.Helper()
	return fake(t, o)
}

func fake(t testing.TB, o Options, clientOpts ...kgo.Opt) *Cluster {
	t.Helper()
	opts := append([]kfake.Opt{
		kfake.NumBrokers(nodes(o)),
		kfake.ClusterID("kafkatest"),
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		// kfake's cleaner takes records of open transactions for newer ones: a
		// test that wants compaction calls Fake.Compact when none is open.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "315360000000"}),
	}, o.Kfake...)
	f, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("kafkatest: start kfake: %v", err)
	}
	t.Cleanup(f.Close)
	c := &Cluster{Brokers: f.ListenAddrs(), Fake: f}
	c.Opts = append([]kgo.Opt{kgo.SeedBrokers(c.Brokers...)}, clientOpts...)
	c.prepare(t, o)
	return c
}

// Real gives the configured Apache Kafka, or skips the test.
func Real(t testing.TB, o Options) *Cluster {
	t.Helper()
	brokers := os.Getenv("KAFKA_BROKERS")
	if brokers == "" {
		brokers = startedBrokers
	}
	if brokers == "" {
		t.Skip("SKIPPED: no Apache Kafka: set KAFKA_BROKERS=host:port,…, or KAFKATEST_START=1 (needs Java and Maven) where the package starts its own")
	}
	c := &Cluster{Brokers: strings.Split(brokers, ","), Prefix: uniquePrefix(t.Name())}
	c.Opts = []kgo.Opt{kgo.SeedBrokers(c.Brokers...)}
	c.prepare(t, o)
	t.Cleanup(func() { c.remove(t) })
	return c
}

// Configured tells whether Real would run.
func Configured() bool { return os.Getenv("KAFKA_BROKERS") != "" || startedBrokers != "" }

// Any gives the configured Apache Kafka, else kfake on loopback.
func Any(t testing.TB, o Options) *Cluster {
	t.Helper()
	if Configured() {
		return Real(t, o)
	}
	return Loopback(t, o)
}

// prepare makes the topics.
func (c *Cluster) prepare(t testing.TB, o Options) {
	t.Helper()
	c.Partitions = o.Partitions
	if c.Partitions == 0 {
		c.Partitions = 4
	}
	if o.NoTopics {
		return
	}
	client := c.Client(t, topology.Fresh())
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	replication := 1
	if c.Fake == nil {
		brokers, err := kadm.NewClient(client).ListBrokers(ctx)
		if err != nil {
			t.Fatalf("kafkatest: brokers %v: %v", c.Brokers, err)
		}
		if len(brokers) >= 3 {
			replication = 3
		}
	}
	_, err := topology.Create(ctx, kadm.NewClient(client), topology.Spec{
		Prefix: c.Prefix, Partitions: c.Partitions, Replication: int16(replication),
		Hooks: true, HookRetention: -1, HookCreateTime: true,
	})
	if err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
}

// remove deletes what the test made on a real cluster.
func (c *Cluster) remove(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(c.Opts...)
	if err != nil {
		return
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	rows, err := topology.List(ctx, adm, c.Prefix)
	if err != nil {
		t.Logf("kafkatest: the topics with prefix %s are left behind: %v", c.Prefix, err)
		return
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.Topic)
	}
	if len(names) != 0 {
		if _, err := adm.DeleteTopics(ctx, names...); err != nil {
			t.Logf("kafkatest: the topics with prefix %s are left behind: %v", c.Prefix, err)
		}
	}
	groups, err := adm.ListGroups(ctx)
	if err != nil {
		return
	}
	for _, g := range groups.Groups() {
		if strings.HasPrefix(g, c.Prefix) {
			_, _ = adm.DeleteGroups(ctx, g) // a group with live members stays, and expires
		}
	}
}

// Client returns a client of the cluster, closed when the test ends.
func (c *Cluster) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(append([]kgo.Opt{}, c.Opts...), opts...)...)
	if err != nil {
		t.Fatalf("kafkatest: client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// BrokerFlag is the value of a --brokers flag.
func (c *Cluster) BrokerFlag() string { return strings.Join(c.Brokers, ",") }

// Topic returns the full name of a topic.
func (c *Cluster) Topic(name string) string { return c.Prefix + name }

var prefixes atomic.Int64

// uniquePrefix is unlike any other test's, also of another run against the same
// cluster, and begins with what a person looks for.
func uniquePrefix(test string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, test)
	name = name[:min(len(name), 40)]
	return fmt.Sprintf("%s-%s%d.", name, strconv.FormatInt(time.Now().UnixMilli(), 36), prefixes.Add(1))
}
