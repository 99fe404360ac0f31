// Package doctor looks at a deployment from outside and says what is wrong with
// it, what is doubtful, and what to do: `provctl doctor`. It changes nothing.
//
// Each check stands alone: one that cannot be made (an access right is missing,
// a broker is too old) is a finding of its own and hides no other.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"provstream/internal/kafka"
	"provstream/internal/topology"
)

// Severity of a finding.
type Severity string

// An Error stops a service or loses evidence, a Warning is to know, OK is a
// check without fault.
const (
	OK      Severity = "ok"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Finding is what a check found.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Cure     string   `json:"cure,omitempty"`
}

// Config says which deployment to look at.
type Config struct {
	Flags      kafka.Flags
	Deployment string
	// Tolerance is the aggregator's --clock-tolerance.
	Tolerance time.Duration
	// As names the role (topics.Roles) whose rights the given credentials must
	// have; "" does not look.
	As string
	// Replication that every topic must have; 0: any.
	Replication int16
	// HookCreateTime says that producers' timestamps on hook records are meant.
	HookCreateTime bool
}

// Checks are the names of the checks, in the order in which they are made.
func Checks() []string {
	return []string{"brokers", "topics", "replicas", "groups", "state", "logs", "transactions", "clocks", "keys", "access"}
}

type patient struct {
	cfg      Config
	c        *kafka.Cluster
	findings []Finding
	check    string
}

// Run makes all checks.
func Run(ctx context.Context, cfg Config) ([]Finding, error) {
	if cfg.Tolerance == 0 {
		cfg.Tolerance = time.Second
	}
	c, err := kafka.Connect(cfg.Flags, topology.Fresh())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p := &patient{cfg: cfg, c: c}
	if !p.examine(ctx, "brokers", p.brokers) {
		return p.findings, nil // nobody answers: nothing else can be seen
	}
	usable := p.examine(ctx, "topics", p.topics)
	p.examine(ctx, "replicas", p.replicas)
	if usable {
		p.examine(ctx, "groups", p.groups)
		p.examine(ctx, "state", p.state)
		p.examine(ctx, "logs", p.logs)
	}
	p.examine(ctx, "transactions", p.transactions)
	p.examine(ctx, "clocks", p.clocks)
	if usable {
		p.examine(ctx, "keys", p.keys)
	}
	if cfg.As != "" {
		p.examine(ctx, "access", p.access)
	}
	return p.findings, nil
}

// examine makes one check and tells whether it found no error.
func (p *patient) examine(ctx context.Context, check string, f func(context.Context) error) bool {
	p.check = check
	before := len(p.findings)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := f(ctx); err != nil {
		cure := "look at the brokers' logs"
		if kafka.Refused(err) {
			cure = "give this principal the rights of `provctl topics acls --role operator`, or run doctor with an administrator's credentials"
		}
		p.add(Error, cure, "cannot be examined: %v", err)
	}
	good := true
	for _, f := range p.findings[before:] {
		good = good && f.Severity != Error
	}
	if len(p.findings) == before {
		p.add(OK, "", "nothing wrong")
	}
	return good
}

func (p *patient) add(s Severity, cure, format string, args ...any) {
	p.findings = append(p.findings, Finding{p.check, s, fmt.Sprintf(format, args...), cure})
}

// brokers: do they answer, and can they do what exactly-once needs.
func (p *patient) brokers(ctx context.Context) error {
	md, err := p.c.Admin.BrokerMetadata(ctx)
	if err != nil {
		p.add(Error, "check --brokers, the network, and the --tls and --sasl flags", "no broker of %s answers: %v", strings.Join(p.cfg.Flags.Brokers, ","), err)
		return nil
	}
	if err := p.c.Features(ctx); err != nil {
		p.add(Error, "use Apache Kafka 4.0 or later with transaction.version=2", "%v", err)
	}
	if md.Controller < 0 {
		p.add(Warning, "look at the controllers' logs", "the cluster has no controller now: topics and groups cannot change")
	}
	return nil
}

// topics: the table against the cluster.
func (p *patient) topics(ctx context.Context) error {
	problems, err := topology.Check(ctx, p.c.Admin, topology.Spec{Prefix: p.cfg.Flags.Prefix, Replication: p.cfg.Replication, HookCreateTime: p.cfg.HookCreateTime})
	if err != nil {
		return err
	}
	// What is the same about many topics is one finding.
	same := make(map[topology.Problem][]string)
	var order []topology.Problem
	for _, t := range problems {
		key := topology.Problem{Severity: t.Severity, What: t.What, Cure: t.Cure}
		if same[key] == nil {
			order = append(order, key)
		}
		same[key] = append(same[key], t.Topic)
	}
	for _, t := range order {
		s := Warning
		if t.Severity == topology.Error {
			s = Error
		}
		names := same[t]
		if len(names) > 3 {
			names = append(names[:2:2], fmt.Sprintf("%d more", len(same[t])-2))
		}
		p.add(s, t.Cure, "%s %s", strings.Join(names, ", "), t.What)
	}
	return nil
}

// replicas: does every partition have a leader, and all its replicas in sync.
func (p *patient) replicas(ctx context.Context) error {
	details, err := p.c.Admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	details.EachPartition(func(d kadm.PartitionDetail) {
		ours := strings.HasPrefix(d.Topic, p.cfg.Flags.Prefix+"prov.") || kafka.IsHookTopic(p.cfg.Flags.Prefix, d.Topic)
		switch {
		case !ours:
		case d.Leader < 0 || d.Err != nil:
			p.add(Error, "bring its brokers back", "%s/%d has no leader: nothing is read from it or written to it, and time stands still for the aggregator", d.Topic, d.Partition)
		case len(d.ISR) < len(d.Replicas):
			p.add(Warning, "bring the lagging brokers back", "%s/%d has %d of %d replicas in sync", d.Topic, d.Partition, len(d.ISR), len(d.Replicas))
		}
	})
	return nil
}
