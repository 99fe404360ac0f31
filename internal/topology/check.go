package topology

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"provstream/internal/topics"
)

// Severity of a Problem.
type Severity string

// An Error keeps a service from starting or loses evidence; a Warning is
// something to know.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one way in which a cluster differs from the Spec.
type Problem struct {
	Topic    string   `json:"topic"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Cure     string   `json:"cure"`
}

// String is a line for people.
func (p Problem) String() string {
	return fmt.Sprintf("%s: %s: %s; %s", p.Severity, p.Topic, p.What, p.Cure)
}

// Check compares the deployment's topics with the Spec and returns every
// difference that matters, sorted by topic. With Partitions 0 the count of the
// first partitioned topic that exists is what the others must have; with
// Replication 0 any is right. Hook topics are held only to what ingest needs
// of them, whoever made them.
func Check(ctx context.Context, adm *kadm.Client, s Spec) ([]Problem, error) {
	have, err := existing(ctx, adm, s.Prefix)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(have))
	for name := range have {
		names = append(names, name)
	}
	slices.Sort(names)
	var configs map[string]map[string]string
	if len(names) != 0 {
		if configs, err = configsByTopic(ctx, adm, names); err != nil {
			return nil, err
		}
	}

	c := checker{createTime: s.HookCreateTime, create: "run `provctl topics create`" + withPrefix(s.Prefix)}
	counts := s.Partitions
	for _, t := range topics.All() {
		name := s.Prefix + t.Name
		d, ok := have[name]
		if !ok {
			c.add(name, Error, "does not exist", c.create)
			continue
		}
		n := int32(len(d.Partitions))
		if t.Partitioned && counts == 0 {
			counts = n
		}
		switch {
		case !t.Partitioned && n != 1:
			c.add(name, Error, fmt.Sprintf("has %d partitions, not 1", n),
				"use another --prefix, or delete the topic if nothing in it is needed, and create it again")
		case t.Partitioned && n != counts:
			c.add(name, Error, fmt.Sprintf("has %d partitions where the deployment has %d", n, counts),
				"partition counts cannot be changed in place: create a deployment under another --prefix, drain this one, switch")
		}
		c.configs(name, s.common(configsOf(t)), configs[name])
		c.replicas(name, d, s.Replication, configs[name])
	}
	c.hooks(s.Prefix, names, have, configs)
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return strings.Compare(a.Topic, b.Topic) })
	return c.problems, nil
}

func withPrefix(prefix string) string {
	if prefix == "" {
		return ""
	}
	return " with --prefix " + prefix
}

type checker struct {
	create     string
	createTime bool // of hook records is meant
	problems   []Problem
}

func (c *checker) add(topic string, s Severity, what, cure string) {
	c.problems = append(c.problems, Problem{topic, s, what, cure})
}

// configs compares the settings of a prov.* topic with the table.
func (c *checker) configs(topic string, wanted, have map[string]string) {
	for _, name := range settings {
		want, ok := wanted[name]
		if !ok {
			continue
		}
		got, known := have[name]
		if !known {
			continue // a broker that does not know the setting cannot have it wrong
		}
		set := fmt.Sprintf("set it: kafka-configs.sh --alter --topic %s --add-config '%s=[%s]'", topic, name, want)
		switch name {
		case "cleanup.policy":
			if sortedList(got) != sortedList(want) {
				c.add(topic, Error, fmt.Sprintf("cleanup.policy is %s, not %s", got, want), set)
			}
		case "max.message.bytes":
			if number(got) < number(want) {
				c.add(topic, Error, fmt.Sprintf("max.message.bytes is %s, less than %s: a large record would stop the service", got, want), set)
			}
		case "retention.ms":
			if number(got) >= 0 && (number(want) < 0 || number(got) < number(want)) {
				c.add(topic, Warning, fmt.Sprintf("retention.ms is %s, shorter than %s", got, want), set+", or keep it if that is meant")
			}
		case "min.insync.replicas":
			if number(got) < number(want) {
				c.add(topic, Warning, fmt.Sprintf("min.insync.replicas is %s, not %s", got, want), set)
			}
		default:
			if got != want {
				c.add(topic, Warning, fmt.Sprintf("%s is %s, not %s", name, got, want), set)
			}
		}
	}
	if n, ok := have["retention.bytes"]; ok && number(n) >= 0 {
		c.add(topic, Warning, "retention.bytes is "+n+": a burst deletes records before their time", "set retention.bytes to -1")
	}
}

func (c *checker) replicas(name string, d kadm.TopicDetail, want int16, configs map[string]string) {
	have := d.Partitions.NumReplicas()
	switch {
	case want > 0 && have < int(want):
		c.add(name, Error, fmt.Sprintf("has %d replicas, not %d", have, want), "reassign its partitions, or create the deployment anew under another --prefix")
	case want == 0 && have < 3:
		c.add(name, Warning, fmt.Sprintf("has %d replica(s): acknowledged records can be lost with a broker", have), "use replication 3 and min.insync.replicas 2 where it matters")
	}
	if configs["unclean.leader.election.enable"] == "true" {
		c.add(name, Error, "unclean.leader.election.enable is true: acknowledged records can be lost", "set it to false")
	}
}

// hooks checks what ingest needs of the topics that others own.
func (c *checker) hooks(prefix string, names []string, have kadm.TopicDetails, configs map[string]map[string]string) {
	any := false
	decisions := prefix + topics.Decisions
	for _, name := range names {
		if !isHook(prefix, name) && name != decisions {
			continue
		}
		any = any || name != decisions
		m := configs[name]
		if m["message.timestamp.type"] == "CreateTime" && !c.createTime {
			c.add(name, Warning, "timestamps are CreateTime: recorded_at is the producer's word", "set message.timestamp.type=LogAppendTime")
		}
		if strings.Contains(m["cleanup.policy"], "compact") {
			c.add(name, Error, "is compacted: hooks with the same key replace each other before they are read", "set cleanup.policy=delete")
		}
		if m["unclean.leader.election.enable"] == "true" {
			c.add(name, Warning, "unclean.leader.election.enable is true: acknowledged hooks can be lost", "set it to false")
		}
	}
	if !any {
		c.add(prefix+"acs.hooks.*", Warning, "there is no hook topic yet", "ingest picks them up as they appear; `provctl topics create --hooks` makes one for each ACS method")
	}
	if _, ok := have[decisions]; !ok {
		c.add(decisions, Error, "does not exist", c.create+" --hooks, or let the Guardians create it")
	}
}

func sortedList(s string) string {
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
