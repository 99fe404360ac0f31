package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/topics"
)

// HookState is what a [HookClock] saw of one hook partition.
type HookState struct {
	Topic     string
	Partition int32
	End       int64 // last stable offset
	Committed int64 // by ingest; -1 without a commit
	// Holds is how far this partition lets time go, in ms; Blocked says that it
	// lets no time pass at all: it has records and ingest never committed.
	Holds   int64
	Blocked bool
}

// Observation is a point in time up to which everything that reached the hook
// topics stands in prov.steps.
type Observation struct {
	T  int64 // ms; meaningless unless OK
	OK bool
	// Holder is the hook partition that holds T back most; nil when all is
	// read.
	Holder *HookState
	// Hooks is the number of hook partitions, Behind of those that ingest has
	// not read to the end.
	Hooks, Behind int
}

// HookClock observes how far time has gone for who reads only prov.steps.
type HookClock struct {
	Cluster *Cluster
	// IngestGroup is ingest's consumer group.
	IngestGroup string
	// Tolerance is how far the clocks of hosts and brokers may be apart.
	Tolerance time.Duration
}

// Observe returns T, the largest instant of which is known: every hook record
// whose recorded_at is at or before T, and that was visible in its partition
// when Observe looked, stands in prov.steps before anything that is written
// from now on.
//
// The order of the looks is the argument. First the clock and the last stable
// offsets of all hook partitions, then ingest's committed offsets: ingest
// commits steps and offsets in one transaction, so when the second look finds
// an offset at or behind the first one's end, the steps below that end are in
// the log. The other way round a record could be appended and stay unread
// between the looks.
func (h *HookClock) Observe(ctx context.Context) (Observation, error) {
	now := time.Now().Add(-h.Tolerance).UnixMilli()
	hooks, err := h.hooks(ctx)
	if err != nil {
		return Observation{}, err
	}
	// Brokers do not tell of topics that one may not see. So where there is no
	// hook topic time stands still, rather than run on past records that are
	// hidden: what could there be to wait for?
	if !slices.ContainsFunc(hooks, func(s HookState) bool { return s.Topic != h.Cluster.Prefix+topics.Decisions }) {
		return Observation{}, nil
	}
	committed, err := h.Cluster.Admin.FetchOffsets(ctx, h.IngestGroup)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return Observation{}, fmt.Errorf("committed offsets of %s: %w", h.IngestGroup, err)
	}
	o := Observation{T: now, OK: true, Hooks: len(hooks)}
	var unread []HookState
	for _, s := range hooks {
		c, ok := committed.Lookup(s.Topic, s.Partition)
		if ok && c.Err != nil {
			return Observation{}, fmt.Errorf("committed offset of %s/%d: %w", s.Topic, s.Partition, c.Err)
		}
		if !ok || c.At < 0 {
			s.Committed = -1
			if s.End > 0 {
				unread = append(unread, s)
			}
			continue
		}
		s.Committed = c.At
		if c.At >= s.End {
			continue
		}
		o.Behind++
		if s.Holds, err = strconv.ParseInt(c.Metadata, 10, 64); err != nil {
			// Only control records were read there so far.
			unread = append(unread, s)
			continue
		}
		if s.Holds < o.T {
			o.T, o.Holder = s.Holds, &s
		}
	}
	if len(unread) == 0 {
		return o, nil
	}
	// Without a commit only a partition that holds nothing lets time pass.
	starts, err := h.Cluster.Admin.ListStartOffsets(ctx, names(unread)...)
	if err != nil {
		return Observation{}, fmt.Errorf("start offsets of hook topics: %w", err)
	}
	for _, s := range unread {
		if start, ok := starts.Lookup(s.Topic, s.Partition); ok && start.Err == nil && start.Offset >= s.End {
			continue
		}
		s.Blocked = true
		return Observation{Holder: &s, Hooks: len(hooks), Behind: o.Behind + 1}, nil
	}
	return o, nil
}

// hooks lists the hook partitions that exist now with their last stable
// offsets. Topics and partitions are asked for anew each time, past the client's
// cache: one that is not known yet must hold the clock from its first record on.
func (h *HookClock) hooks(ctx context.Context) ([]HookState, error) {
	topics, err := h.Cluster.hookPartitions(ctx)
	if err != nil || len(topics) == 0 {
		return nil, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = int8(ReadCommitted)
	for _, t := range topics {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = *t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p.Partition, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, h.Cluster.Client)
	if err != nil {
		return nil, fmt.Errorf("end offsets of hook topics: %w", err)
	}
	var hooks []HookState
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case errors.Is(err, kerr.UnknownTopicOrPartition): // deleted since
			case err != nil:
				return nil, fmt.Errorf("end offset of %s/%d: %w", t.Topic, p.Partition, err)
			default:
				hooks = append(hooks, HookState{Topic: t.Topic, Partition: p.Partition, End: p.Offset})
			}
		}
	}
	return hooks, nil
}

func names(hooks []HookState) []string {
	seen := make(map[string]bool)
	var out []string
	for _, s := range hooks {
		if !seen[s.Topic] {
			seen[s.Topic] = true
			out = append(out, s.Topic)
		}
	}
	return out
}

// RecordedAtMetadata is how ingest keeps, with a committed offset, the largest
// recorded_at that it has read below it.
func RecordedAtMetadata(ms int64) string { return strconv.FormatInt(ms, 10) }

// ParseRecordedAtMetadata reads it back.
func ParseRecordedAtMetadata(s string) (ms int64, ok bool) {
	ms, err := strconv.ParseInt(s, 10, 64)
	return ms, err == nil
}
