package topology_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"provstream/internal/kafkatest"
	"provstream/internal/topics"
	"provstream/internal/topology"
)

func admin(t *testing.T, c *kafkatest.Cluster) *kadm.Client {
	t.Helper()
	return kadm.NewClient(c.Client(t, topology.Fresh()))
}

// TestCreate makes a deployment's topics twice: the second time nothing is left
// to do, and Check finds nothing wrong with what was made.
func TestCreate(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{NoTopics: true})
	adm := admin(t, c)
	spec := topology.Spec{Prefix: c.Prefix + "x-", Partitions: 3, Replication: 1, Hooks: true, HookPartitions: 2}
	t.Cleanup(func() { deleteAll(t, c, spec.Prefix) })
	created, err := topology.Create(t.Context(), adm, spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(topics.All()) + len(topology.HookTopics()) + 1; len(created) != want {
		t.Errorf("%d topics made, want %d", len(created), want)
	}
	again, err := topology.Create(t.Context(), adm, spec)
	if err != nil || len(again) != 0 {
		t.Errorf("made again: %v, %v", again, err)
	}
	problems, err := topology.Check(t.Context(), adm, spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	rows, err := topology.List(t.Context(), adm, spec.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(created) {
		t.Errorf("%d topics listed, want %d", len(rows), len(created))
	}
	for i, r := range rows {
		want := 3
		switch {
		case strings.Contains(r.Topic, "acs."):
			want = 2
		case strings.HasSuffix(r.Topic, topics.Keys):
			want = 1
		}
		if r.Partitions != want || r.Replication != 1 || r.Records != 0 {
			t.Errorf("%+v: want %d partitions", r, want)
		}
		if r.Configs["cleanup.policy"] == "" {
			t.Errorf("%s: no configuration listed", r.Topic)
		}
		if i > 0 && strings.Contains(rows[i-1].Topic, "prov.") && strings.Contains(r.Topic, "acs.") {
			t.Errorf("%s stands after %s", r.Topic, rows[i-1].Topic)
		}
	}
}

// TestCheck breaks a deployment in each way that Check knows.
func TestCheck(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{Partitions: 2})
	adm := admin(t, c)
	ctx := t.Context()
	base := topology.Spec{Prefix: c.Prefix}
	alter := func(topic, name, value string) {
		t.Helper()
		rs, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: name, Value: &value}}, c.Topic(topic))
		if err != nil || rs[0].Err != nil {
			t.Fatal(err, rs)
		}
	}
	if _, err := adm.UpdatePartitions(ctx, 3, c.Topic(topics.Turns), c.Topic(topics.Keys)); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteTopics(ctx, c.Topic(topics.Coverage), c.Topic(topics.Decisions)); err != nil {
		t.Fatal(err)
	}
	alter(topics.Runs, "max.message.bytes", "1000000")
	alter(topics.AggregatorState, "cleanup.policy", "delete")
	alter(topics.DAGs, "retention.ms", "1000")
	alter("acs.hooks.turn-start", "cleanup.policy", "compact")
	alter(topics.Steps, "retention.bytes", "1000")
	problems, err := topology.Check(ctx, adm, base)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		topic    string
		severity topology.Severity
		text     string
	}{
		{topics.Turns, topology.Error, "has 3 partitions where the deployment has 2"},
		{topics.Keys, topology.Error, "has 3 partitions, not 1"},
		{topics.Coverage, topology.Error, "does not exist"},
		{topics.Decisions, topology.Error, "does not exist"},
		{topics.Runs, topology.Error, "max.message.bytes"},
		{topics.AggregatorState, topology.Error, "cleanup.policy is delete, not compact"},
		{topics.DAGs, topology.Warning, "retention.ms is 1000, shorter than -1"},
		{topics.Steps, topology.Warning, "retention.bytes"},
		{"acs.hooks.turn-start", topology.Error, "is compacted"},
		{"acs.hooks.turn-start", topology.Warning, "CreateTime"},
	} {
		found := slices.ContainsFunc(problems, func(p topology.Problem) bool {
			return p.Topic == c.Topic(want.topic) && p.Severity == want.severity && strings.Contains(p.What, want.text) && p.Cure != ""
		})
		if !found {
			t.Errorf("%s: no %s that %q", want.topic, want.severity, want.text)
		}
	}
	if t.Failed() {
		for _, p := range problems {
			t.Log(p)
		}
	}
}

// TestCheckCounts holds that a given partition count is what counts.
func TestCheckCounts(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{Partitions: 2})
	problems, err := topology.Check(t.Context(), admin(t, c), topology.Spec{Prefix: c.Prefix, Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range problems {
		if strings.Contains(p.What, "has 2 partitions where the deployment has 4") {
			n++
		}
	}
	if want := len(topics.All()) - 1; n != want { // prov.keys has one
		t.Errorf("%d topics have the wrong count, want %d", n, want)
	}
}

func deleteAll(t *testing.T, c *kafkatest.Cluster, prefix string) {
	if c.Fake != nil {
		return
	}
	ctx := context.Background() // the test's own has ended
	adm := kadm.NewClient(c.Client(t))
	rows, err := topology.List(ctx, adm, prefix)
	if err != nil {
		return
	}
	for _, r := range rows {
		_, _ = adm.DeleteTopic(ctx, r.Topic)
	}
}
