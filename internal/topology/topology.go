// Package topology creates, checks and lists the topics of a deployment on a
// cluster. The table itself is data (package topics); this package is its
// shell over an admin client. Services never call Create: an operator does,
// with `provctl topics create`, the embedded broker does, and tests do.
package topology

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/topics"
)

// Spec says what a deployment's topics look like. The zero value is not
// usable: Partitions and Replication have no default here.
type Spec struct {
	Prefix      string // stands before every name, acs.* too
	Partitions  int32  // of every partitioned prov.* topic
	Replication int16  // from 3 on, min.insync.replicas is 2

	// Hooks adds the hook topic of every ACS method and acs.decisions, which
	// otherwise belong to whoever publishes the hooks.
	Hooks bool
	// HookPartitions is their partition count; 0 means Partitions.
	HookPartitions int32
	// HookRetention is their retention; 0 keeps the broker's default, less
	// than 0 is unlimited. Hook topics that take records with old timestamps
	// need unlimited retention: such a record expires at birth otherwise.
	HookRetention time.Duration
	// HookCreateTime leaves the timestamps of hook records to the producer.
	// Without it they are LogAppendTime, which is what makes recorded_at the
	// moment the record reached Kafka.
	HookCreateTime bool
}

// Fresh is the option of a client that is asked for topics it has just made.
func Fresh() kgo.Opt { return kgo.MetadataMinAge(100 * time.Millisecond) }

// Topic is one topic of a Spec: its full name and what it must be like.
type Topic struct {
	Name        string
	Partitions  int32
	Replication int16
	Configs     map[string]string
	Hook        bool // belongs to the producers of hooks
	Holds       string
}

// hookMethods are the methods that get a hook topic: every method of the ACS
// inventory that an agent sends, and the wrapped MCP messages that become nodes of
// their own kinds. Others may be added: ingest reads whatever matches acs.hooks.*.
var hookMethods = []string{
	acs.MethodHandshakeHello, acs.MethodSessionStart, acs.MethodAgBOMSnapshot, acs.MethodAgentTrigger,
	acs.MethodTurnStart, acs.MethodUserMessage, acs.MethodSkillRegister, acs.MethodSkillLoad,
	acs.MethodMemoryContextRetrieval, acs.MethodKnowledgeRetrieval, acs.MethodSubagentStart,
	acs.MethodSubagentStop, acs.MethodToolCallRequest, acs.MethodToolCallResult, acs.MethodMemoryStore,
	acs.MethodAgBOMChanged, acs.MethodPreCompact, acs.MethodPostCompact, acs.MethodSkillUnload,
	acs.MethodAgentResponse, acs.MethodTurnEnd, acs.MethodSessionEnd, acs.MethodSystemPing,
	"protocols/MCP/tools/call", "protocols/MCP/resources/read", "protocols/MCP/prompts/get",
}

// HookTopics returns the names of the hook topics, without prefix, sorted.
func HookTopics() []string {
	names := make([]string, 0, len(hookMethods))
	for _, m := range hookMethods {
		names = append(names, topics.Hook(m))
	}
	slices.Sort(names)
	return names
}

// Topics returns what the Spec describes, in the order of the data flow.
func (s Spec) Topics() []Topic {
	var out []Topic
	if s.Hooks {
		configs := s.common(map[string]string{
			"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime",
			// Above ingest's --max-value-bytes, so that an envelope that is too
			// large ends in the dead letter, not in an error that only its
			// producer sees.
			"max.message.bytes": strconv.Itoa(2 << 20),
		})
		if s.HookCreateTime {
			configs["message.timestamp.type"] = "CreateTime"
		}
		if s.HookRetention != 0 {
			configs["retention.ms"] = milliseconds(s.HookRetention)
		}
		n := s.HookPartitions
		if n == 0 {
			n = s.Partitions
		}
		for _, name := range append(HookTopics(), topics.Decisions) {
			holds := "hook envelopes"
			if name == topics.Decisions {
				holds = "decisions"
			}
			out = append(out, Topic{s.Prefix + name, n, s.Replication, configs, true, holds})
		}
	}
	for _, t := range topics.All() {
		n := int32(1)
		if t.Partitioned {
			n = s.Partitions
		}
		out = append(out, Topic{s.Prefix + t.Name, n, s.Replication, s.common(configsOf(t)), false, t.Holds})
	}
	return out
}

// common adds the settings that every topic has.
func (s Spec) common(configs map[string]string) map[string]string {
	if s.Replication >= 3 {
		// With two of three in sync an acknowledged record survives the loss
		// of any one broker, and one broker may be down.
		configs["min.insync.replicas"] = "2"
	}
	return configs
}

func configsOf(t topics.Topic) map[string]string {
	var policy []string
	if t.Compact {
		policy = append(policy, "compact")
	}
	if t.Delete {
		policy = append(policy, "delete")
	}
	configs := map[string]string{"cleanup.policy": strings.Join(policy, ",")}
	if t.Delete {
		retention := t.Retention
		if retention == 0 {
			retention = -1
		}
		configs["retention.ms"] = milliseconds(retention)
	}
	if t.MaxMessageBytes != 0 {
		configs["max.message.bytes"] = strconv.Itoa(t.MaxMessageBytes)
	}
	for name, d := range map[string]time.Duration{
		"segment.ms": t.SegmentTime, "max.compaction.lag.ms": t.MaxCompactionLag, "delete.retention.ms": t.DeleteRetention,
	} {
		if d != 0 {
			configs[name] = milliseconds(d)
		}
	}
	return configs
}

func milliseconds(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// Create creates the topics that do not exist and returns their names. Topics
// that exist are left as they are: Check tells what is wrong with them. It
// returns when every created partition has a leader: producing earlier can meet
// a leader that is not ready, and an idempotent producer may then only recover
// when the batch has expired. Clients keep metadata for a while (kgo.MetadataMinAge,
// 5 s by default) and see a leader so much later: give this one [Fresh].
func Create(ctx context.Context, adm *kadm.Client, s Spec) (created []string, err error) {
	if s.Partitions < 1 || s.Replication < 1 {
		return nil, fmt.Errorf("create topics: partitions %d and replication %d must be at least 1", s.Partitions, s.Replication)
	}
	want := s.Topics()
	// One request per distinct shape: kadm creates topics of one shape at once.
	type shape struct {
		partitions int32
		configs    string
	}
	groups := make(map[shape][]Topic)
	var order []shape
	for _, t := range want {
		k := shape{t.Partitions, fmt.Sprint(t.Configs)} // fmt prints maps sorted
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], t)
	}
	// Requests side by side: a cluster takes half a second for one that waits.
	responses := make([]kadm.CreateTopicResponses, len(order))
	failures := make([]error, len(order))
	var wg sync.WaitGroup
	for i, k := range order {
		group := groups[k]
		configs := make(map[string]*string, len(group[0].Configs))
		for name, value := range group[0].Configs {
			configs[name] = &value
		}
		wg.Go(func() {
			responses[i], failures[i] = adm.CreateTopics(ctx, k.partitions, s.Replication, configs, names(group)...)
		})
	}
	wg.Wait()
	var errs []error
	refused := make(map[string]int) // how many topics are refused with the same words
	for i := range order {
		if failures[i] != nil {
			errs = append(errs, fmt.Errorf("create topics: %w", failures[i]))
		}
		for _, r := range responses[i].Sorted() {
			switch {
			case r.Err == nil:
				created = append(created, r.Topic)
			case errors.Is(r.Err, kerr.TopicAlreadyExists):
			default:
				err := withMessage(r.Err, r.ErrMessage)
				if refused[err.Error()]++; refused[err.Error()] > 1 {
					continue
				}
				if errors.Is(err, kerr.InvalidReplicationFactor) {
					err = fmt.Errorf("%w; --replication says how many replicas, at most one a broker", err)
				}
				errs = append(errs, fmt.Errorf("create topic %s: %w", r.Topic, err))
			}
		}
	}
	slices.Sort(created)
	if len(errs) != 0 {
		return created, errors.Join(errs...)
	}
	want = slices.DeleteFunc(want, func(t Topic) bool {
		_, ok := slices.BinarySearch(created, t.Name)
		return !ok
	})
	return created, waitForLeaders(ctx, adm, want)
}

func withMessage(err error, message string) error {
	if message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, message)
}

func names(ts []Topic) []string {
	out := make([]string, len(ts))
	for i, t := range ts {
		out[i] = t.Name
	}
	return out
}

// waitForLeaders returns when the leader of each partition of the topics answers
// for its end offset, which only a leader that is ready does. It asks for metadata
// first: a client that is asked for offsets of partitions it knows no leader of
// asks for them seldom.
func waitForLeaders(ctx context.Context, adm *kadm.Client, ts []Topic) error {
	if len(ts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	want := 0
	for _, t := range ts {
		want += int(t.Partitions)
	}
	led := func() (n int, err error) {
		m, err := adm.Metadata(ctx, names(ts)...)
		if err != nil {
			return 0, err
		}
		m.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Err == nil && p.Leader >= 0 {
				n++
			}
		})
		return n, nil
	}
	ready := func() (n int, err error) {
		offsets, err := adm.ListEndOffsets(ctx, names(ts)...)
		if err != nil {
			return 0, err
		}
		offsets.Each(func(o kadm.ListedOffset) {
			if o.Err == nil {
				n++
			}
		})
		return n, nil
	}
	for _, ask := range []func() (int, error){led, ready} {
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
			n, err := ask()
			if err == nil && n >= want {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for the leaders of created topics: %d of %d partitions are served: %w", n, want, errors.Join(err, ctx.Err()))
			case <-time.After(pause):
			}
		}
	}
	return nil
}

// Row is one topic that exists.
type Row struct {
	Topic       string            `json:"topic"`
	Partitions  int               `json:"partitions"`
	Replication int               `json:"replication"`
	Records     int64             `json:"records"` // end minus start offsets; control records and compacted ones count
	Bytes       int64             `json:"bytes"`   // on the leaders' disks; -1 where the cluster does not tell
	Configs     map[string]string `json:"configs"` // those that the table sets
}

// List returns the deployment's topics that exist: hook topics in the order of
// their names, then acs.decisions, then the rest in the order of the data flow.
func List(ctx context.Context, adm *kadm.Client, prefix string) ([]Row, error) {
	details, err := existing(ctx, adm, prefix)
	if err != nil || len(details) == 0 {
		return nil, err
	}
	order := slices.Collect(maps.Keys(details))
	rank := make(map[string]int)
	for i, t := range topics.All() {
		rank[prefix+t.Name] = i + 2
	}
	rank[prefix+topics.Decisions] = 1
	slices.SortFunc(order, func(a, b string) int {
		if rank[a] != rank[b] {
			return rank[a] - rank[b]
		}
		return strings.Compare(a, b)
	})
	starts, err := adm.ListStartOffsets(ctx, order...)
	if err != nil {
		return nil, fmt.Errorf("list topics: start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, order...)
	if err != nil {
		return nil, fmt.Errorf("list topics: end offsets: %w", err)
	}
	configs, err := configsByTopic(ctx, adm, order)
	if err != nil {
		return nil, err
	}
	sizes := leaderBytes(ctx, adm, details)
	rows := make([]Row, 0, len(order))
	for _, name := range order {
		d := details[name]
		row := Row{Topic: name, Partitions: len(d.Partitions), Replication: d.Partitions.NumReplicas(), Bytes: -1, Configs: configs[name]}
		for p := range d.Partitions {
			s, okS := starts.Lookup(name, p)
			e, okE := ends.Lookup(name, p)
			if okS && okE && s.Err == nil && e.Err == nil {
				row.Records += e.Offset - s.Offset
			}
		}
		if size, ok := sizes[name]; ok {
			row.Bytes = size
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// existing returns the topics of the deployment that exist.
func existing(ctx context.Context, adm *kadm.Client, prefix string) (kadm.TopicDetails, error) {
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	ours := map[string]bool{prefix + topics.Decisions: true}
	for _, t := range topics.All() {
		ours[prefix+t.Name] = true
	}
	out := make(kadm.TopicDetails)
	for name, d := range all {
		if !ours[name] && !isHook(prefix, name) {
			continue
		}
		if d.Err != nil {
			return nil, fmt.Errorf("list topics: topic %s: %w", name, d.Err)
		}
		out[name] = d
	}
	return out, hidden(ctx, adm, ours, out)
}

// hidden is an error where one of our topics may not be described: brokers leave
// it out of a list as if it did not exist.
func hidden(ctx context.Context, adm *kadm.Client, ours map[string]bool, found kadm.TopicDetails) error {
	var missing []string
	for name := range ours {
		if _, ok := found[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	details, err := adm.ListTopics(ctx, missing...)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	for _, name := range missing {
		if err := details[name].Err; errors.Is(err, kerr.TopicAuthorizationFailed) {
			return fmt.Errorf("topic %s: %w", name, err)
		}
	}
	return nil
}

// isHook tells whether ingest subscribes to the topic: ^<prefix>acs\.hooks\..+
func isHook(prefix, name string) bool {
	rest, ok := strings.CutPrefix(name, prefix+topics.HookPrefix)
	return ok && rest != ""
}

// leaderBytes sums what the partitions take on the disks of their leaders. A
// cluster that does not tell (no permission, a managed one) gives nothing.
func leaderBytes(ctx context.Context, adm *kadm.Client, details kadm.TopicDetails) map[string]int64 {
	set := make(kadm.TopicsSet)
	for name, d := range details {
		for p := range d.Partitions {
			set.Add(name, p)
		}
	}
	brokers, err := adm.DescribeAllLogDirs(ctx, set)
	if err != nil {
		return nil
	}
	sizes := make(map[string]int64)
	brokers.Each(func(dir kadm.DescribedLogDir) {
		if dir.Err != nil {
			return
		}
		dir.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if d, ok := details[p.Topic].Partitions[p.Partition]; ok && d.Leader == dir.Broker {
				sizes[p.Topic] += p.Size
			}
		})
	})
	return sizes
}

// settings are the configuration names that the table sets or that Check reads.
var settings = []string{
	"cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "segment.ms", "max.compaction.lag.ms",
	"delete.retention.ms", "min.insync.replicas", "message.timestamp.type", "unclean.leader.election.enable",
}

func configsByTopic(ctx context.Context, adm *kadm.Client, names []string) (map[string]map[string]string, error) {
	resources, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe topic configurations: %w", err)
	}
	out := make(map[string]map[string]string, len(resources))
	for _, r := range resources {
		if r.Err != nil {
			return nil, fmt.Errorf("describe the configuration of topic %s: %w", r.Name, withMessage(r.Err, r.ErrMessage))
		}
		m := make(map[string]string)
		for _, c := range r.Configs {
			if c.Value != nil && slices.Contains(settings, c.Key) {
				m[c.Key] = *c.Value
			}
		}
		out[r.Name] = m
	}
	return out, nil
}
