package doctor_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/aggregator"
	"provstream/internal/codec"
	"provstream/internal/doctor"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/pipeline"
	"provstream/internal/signer"
	"provstream/internal/topics"
	"provstream/internal/topology"
	"provstream/verify"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// world is a sound deployment; each case breaks one thing.
type world struct {
	*kafkatest.Cluster
	t     *testing.T
	flags kafka.Flags
	cl    *kgo.Client
	adm   *kadm.Client
}

func newWorld(t *testing.T, c *kafkatest.Cluster) *world {
	w := &world{Cluster: c, t: t, flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}}
	w.cl = c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.adm = kadm.NewClient(w.cl)
	return w
}

func (w *world) send(topic string, at time.Time, values ...string) {
	w.t.Helper()
	for _, v := range values {
		if err := w.cl.ProduceSync(w.t.Context(), &kgo.Record{Topic: w.Topic(topic), Value: []byte(v), Timestamp: at}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// pipeline runs ingest and aggregator for a while.
func (w *world) pipeline(d time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	base := kafka.Config{Flags: w.flags, LeaveOnStop: true}
	done := make(chan error, 2)
	go func() { done <- ingest.Run(ctx, ingest.Config{Config: base}) }()
	go func() { done <- aggregator.Run(ctx, aggregator.Config{Config: base}) }()
	for range 2 {
		if err := <-done; err != nil {
			w.t.Fatal(err)
		}
	}
}

// produce writes a record as it is.
func (w *world) produce(topic string, r *kgo.Record) {
	w.t.Helper()
	r.Topic = w.Topic(topic)
	if err := w.cl.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// signed runs the whole pipeline for a while.
func (w *world) signed(d time.Duration) {
	w.t.Helper()
	p := pipeline.New(w.t.Context(), pipeline.Config{Flags: w.flags, Ring: newRing(w.t), Instance: "0"})
	p.Start(pipeline.Ingest, pipeline.Aggregator, pipeline.Signer)
	time.Sleep(d)
	if err := p.Stop(); err != nil {
		w.t.Fatal(err)
	}
}

func newRing(t *testing.T) *keys.Ring {
	t.Helper()
	log, err1 := keys.Generate(verify.UseLog, "")
	dag, err2 := keys.Generate(verify.UseDAG, "")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ring, err := keys.NewRing(log, dag)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// remove deletes a topic and waits until it is gone.
func (w *world) remove(topic string) {
	w.t.Helper()
	if _, err := w.adm.DeleteTopics(w.t.Context(), w.Topic(topic)); err != nil {
		w.t.Fatal(err)
	}
	adm := kadm.NewClient(w.Client(w.t, topology.Fresh()))
	for range 100 {
		details, err := adm.ListTopics(w.t.Context(), w.Topic(topic))
		if err == nil && errors.Is(details[w.Topic(topic)].Err, kerr.UnknownTopicOrPartition) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("%s does not go", topic)
}

func (w *world) set(topic, name, value string) {
	w.t.Helper()
	_, err := w.adm.AlterTopicConfigs(w.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, w.Topic(topic))
	if err != nil {
		w.t.Fatal(err)
	}
}

const hook = "acs.hooks.user-message"

// planted is a fault and what doctor says of it.
type planted struct {
	name     string
	plant    func(w *world)
	check    string
	severity doctor.Severity
	what     string
	cure     string
}

func plants() []planted {
	return []planted{
		{"missing topic", func(w *world) { w.remove(topics.Turns) }, "topics", doctor.Error, "prov.turns does not exist", "topics create"},
		{"unequal counts", func(w *world) {
			w.remove(topics.DAGs)
			if _, err := w.adm.CreateTopics(w.t.Context(), 2, 1, nil, w.Topic(topics.DAGs)); err != nil {
				w.t.Fatal(err)
			}
		}, "topics", doctor.Error, "prov.dags has 2 partitions", "another --prefix"},
		{"compacted steps", func(w *world) { w.set(topics.Steps, "cleanup.policy", "compact") }, "topics", doctor.Error, "cleanup.policy", "set it"},
		{"small messages", func(w *world) { w.set(topics.Runs, "max.message.bytes", "1000000") }, "topics", doctor.Error, "max.message.bytes", "set it"},
		{"short retention", func(w *world) { w.set(topics.Coverage, "retention.ms", "3600000") }, "topics", doctor.Warning, "retention.ms", "set it"},
		{"compacted hooks", func(w *world) { w.set(hook, "cleanup.policy", "compact") }, "topics", doctor.Error, "compacted", "delete"},
		{"create time", func(w *world) { w.set(hook, "message.timestamp.type", "CreateTime") }, "topics", doctor.Warning, "CreateTime", "LogAppendTime"},
		{"record from the future", func(w *world) { w.send(hook, time.Now().Add(30*time.Minute), "{}") }, "clocks", doctor.Warning, "ahead of this host's clock", "NTP"},
		{"no service has run", func(*world) {}, "groups", doctor.Warning, "aggregator has never run", "start it"},
		{"no keys published", func(*world) {}, "keys", doctor.Warning, "no active key", "keys publish"},
		{"hanging transaction", func(w *world) {
			agent := w.Client(w.t, kgo.TransactionalID("agent"), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err := agent.BeginTransaction(); err != nil {
				w.t.Fatal(err)
			}
			if err := agent.ProduceSync(w.t.Context(), &kgo.Record{Topic: w.Topic(hook), Value: []byte("{}")}).FirstErr(); err != nil {
				w.t.Fatal(err)
			}
			time.Sleep(35 * time.Second)
		}, "transactions", doctor.Error, "transaction of agent is open for", "kafka-transactions.sh abort"},
		{"services stopped", func(w *world) {
			w.send(hook, time.Now(), "{}")
			w.pipeline(2 * time.Second)
		}, "groups", doctor.Error, "no instance of ingest runs", "start it"},
		{"records lost before ingest read them", func(w *world) {
			w.send(hook, time.Now(), "{}")
			w.pipeline(2 * time.Second)
			w.send(hook, time.Now(), "{}", "{}", "{}")
			before := make(kadm.Offsets)
			before.AddOffset(w.Topic(hook), 0, 3, -1)
			if _, err := w.adm.DeleteRecords(w.t.Context(), before); err != nil {
				w.t.Fatal(err)
			}
		}, "groups", doctor.Error, "lost 2 records before ingest read them", "retention"},
		{"offsets reset", func(w *world) {
			w.send(hook, time.Now(), rejected)
			w.pipeline(3 * time.Second)
			if _, err := w.adm.DeleteGroups(w.t.Context(), kafka.DefaultGroup(w.Prefix, "aggregator")); err != nil {
				w.t.Fatal(err)
			}
		}, "state", doctor.Error, "the group was deleted", "Lost offsets"},
		{"a clock that was ahead", func(w *world) {
			w.produce(topics.Steps, &kgo.Record{Value: codec.AppendTick(nil, time.Now().Add(time.Hour).UnixMilli())})
			w.send(hook, time.Now(), rejected)
			w.pipeline(4 * time.Second)
		}, "state", doctor.Error, "ahead of this host's", "NTP"},
		{"a signer with other keys", func(w *world) {
			for _, k := range newRing(w.t).Public() {
				w.produce(topics.Keys, &kgo.Record{Key: []byte(k.ID), Value: k.JWK()})
			}
			w.send(hook, time.Now(), rejected)
			w.signed(6 * time.Second)
		}, "keys", doctor.Error, "is signed by a key that is not on", "key directory"},
		{"signer's offsets reset", func(w *world) {
			w.send(hook, time.Now(), rejected)
			w.signed(6 * time.Second)
			if _, err := w.adm.DeleteGroups(w.t.Context(), kafka.DefaultGroup(w.Prefix, "signer")); err != nil {
				w.t.Fatal(err)
			}
		}, "logs", doctor.Error, "its offsets were reset", "Lost offsets"},
	}
}

// Each fault is found, with its cure, on kfake; and on Apache Kafka where one is
// configured.
func TestDoctorFindsWhatIsPlanted(t *testing.T) {
	for _, tc := range plants() {
		t.Run(tc.name, func(t *testing.T) {
			t.Run("kfake", func(t *testing.T) {
				if tc.name == "hanging transaction" && !kafkatest.VirtualTime {
					t.Skip("SKIPPED: takes long; run with -tags synctests")
				}
				kafkatest.Bubble(t, kafkatest.Options{}, tc.find)
			})
			t.Run("kafka", func(t *testing.T) {
				t.Parallel() // they wait most of the time
				tc.find(t, kafkatest.Real(t, kafkatest.Options{Partitions: 3}))
			})
		})
	}
}

func (p planted) find(t *testing.T, c *kafkatest.Cluster) {
	w := newWorld(t, c)
	p.plant(w)
	findings, err := doctor.Run(t.Context(), doctor.Config{Flags: w.flags})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Check == p.check && f.Severity == p.severity && strings.Contains(f.What, p.what) && strings.Contains(f.Cure, p.cure) {
			return
		}
	}
	t.Errorf("not found: %s %q; got %+v", p.check, p.what, findings)
}

// A sound deployment at work gives no finding at all, on three brokers and on one
// where that is meant.
func TestDoctorIsContent(t *testing.T) {
	c := kafkatest.Real(t, kafkatest.Options{NoTopics: true})
	w := newWorld(t, c)
	brokers, err := w.adm.ListBrokers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replication := int16(min(len(brokers), 3))
	if _, err := topology.Create(t.Context(), w.adm, topology.Spec{Prefix: c.Prefix, Partitions: 2, Replication: replication, Hooks: true, HookPartitions: 1}); err != nil {
		t.Fatal(err)
	}
	ring := newRing(t)
	for _, k := range ring.Public() {
		w.produce(topics.Keys, &kgo.Record{Key: []byte(k.ID), Value: k.JWK()})
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := pipeline.New(ctx, pipeline.Config{Flags: w.flags, Ring: ring, Instance: "0"})
	p.Start(pipeline.Ingest, pipeline.Aggregator, pipeline.Signer)
	defer func() {
		cancel()
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}()
	w.send(hook, time.Time{}, rejected)
	look := func() []doctor.Finding {
		findings, err := doctor.Run(t.Context(), doctor.Config{Flags: w.flags, Replication: replication})
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(findings, func(f doctor.Finding) bool { return f.Severity == doctor.OK })
	}
	bad := look()
	for end := time.Now().Add(30 * time.Second); len(bad) != 0 && time.Now().Before(end); bad = look() {
		time.Sleep(500 * time.Millisecond) // the groups are only being made
	}
	// The services commit while doctor looks.
	for n := 0; n < 20 && len(bad) == 0; n++ {
		w.send(hook, time.Time{}, slices.Repeat([]string{rejected}, 20)...)
		bad = look()
	}
	if len(bad) != 0 {
		t.Errorf("a sound deployment has %+v", bad)
	}
}

// rejected is an envelope that still tells its session.
const rejected = `{"jsonrpc":"2.0","method":"steps/userMessage","id":1,"params":{"acs_version":"0.1.0","request_id":"00000000-0000-4000-8000-000000000001",` +
	`"timestamp":"2026-01-01T00:00:00Z","metadata":{"agent_id":"a","session_id":"00000000-0000-4000-8000-000000000002"},"payload":{}}}`

// Nobody answers: the one finding says so.
func TestDoctorWithoutBrokers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	findings, err := doctor.Run(ctx, doctor.Config{Flags: kafka.Flags{Brokers: []string{"127.0.0.1:1"}}})
	if err != nil || len(findings) != 1 || findings[0].Severity != doctor.Error || !strings.Contains(findings[0].What, "no broker") {
		t.Errorf("%+v, %v", findings, err)
	}
}

// The rights of a service, one removed.
func TestDoctorMissesARight(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		findings, err := doctor.Run(t.Context(), doctor.Config{Flags: w.flags, As: signer.Service})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Check == "access" && f.Severity == doctor.Error {
				t.Errorf("without authorization everything is allowed: %+v", f)
			}
		}
	})
}
