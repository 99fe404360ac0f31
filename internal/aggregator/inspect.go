package aggregator

import (
	"context"

	"provstream/internal/kafka"
	"provstream/internal/topics"
	"provstream/internal/window"
)

// Inspection is what is stored of one partition, and what that leads to.
type Inspection struct {
	Partition int32 `json:"partition"`
	// Committed is the group's offset, -1 without; End the end of prov.steps.
	Committed int64 `json:"committed"`
	End       int64 `json:"end"`
	// Stored tells whether there is state at all; the members below are of it.
	Stored bool  `json:"stored"`
	Next   int64 `json:"next"`
	Low    int64 `json:"low"`
	// Clock is the log's clock at Next, in ms; null before the first tick.
	Clock      *int64 `json:"clock"`
	Partitions int32  `json:"partitions"`
	// Snapshots are the state records of runs, and their bytes.
	Snapshots     int           `json:"snapshots"`
	SnapshotBytes int64         `json:"snapshot_bytes"`
	Window        window.Config `json:"window"`
	// Fault says why a service would refuse this state; "" if it would not.
	Fault string `json:"fault,omitempty"`
	// Replayed is the number of records that a restore reads, Stats what it
	// gives; with replay only.
	Loaded   int           `json:"loaded,omitempty"` // records of open runs that come from snapshots
	Replayed int           `json:"replayed,omitempty"`
	Stats    *window.Stats `json:"stats,omitempty"`
	// Runs are the open ones, the largest first; with replay only.
	Runs []window.OpenRun `json:"runs,omitempty"`
}

// Inspect reads what is stored of a partition as a restore does, and with replay
// restores it too. It changes nothing.
func Inspect(ctx context.Context, c *kafka.Cluster, cfg Config, partition int32, replay bool) (Inspection, error) {
	cfg.Service = Service
	cfg.Config = cfg.Config.WithDefaults()
	s := &service{cfg: cfg, cluster: c, metrics: newMetrics(nil, nil)}
	in := kafka.Input{Topic: cfg.Topic(topics.Steps), Partition: partition, Committed: -1}
	i := Inspection{Partition: partition, Committed: -1}
	offsets, err := c.Committed(ctx, cfg.Group)
	if err != nil {
		return i, err
	}
	if o, ok := offsets.Lookup(in.Topic, partition); ok {
		in.Committed, i.Committed = o.At, o.At
	}
	bounds, err := c.Bounds(ctx, in.Topic, partition)
	if err != nil {
		return i, err
	}
	i.End = bounds.End
	stored, err := s.readState(ctx, partition)
	if err != nil || stored == nil && in.Committed < 0 {
		return i, err
	}
	// A service at work commits while this looks: its state may be of a
	// transaction after the offsets that were read.
	if stored != nil && stored.Next > in.Committed {
		later, err := c.Committed(ctx, cfg.Group)
		if err != nil {
			return i, err
		}
		if o, ok := later.Lookup(in.Topic, partition); ok && o.At >= stored.Next {
			in.Committed, i.Committed, i.End = stored.Next, stored.Next, max(i.End, stored.Next)
		}
	}
	if err := s.checkState(in, stored); err != nil {
		i.Fault = err.Error()
	}
	if stored == nil {
		return i, nil
	}
	i.Stored, i.Next, i.Low, i.Clock, i.Partitions, i.Window = true, stored.Next, stored.Low, stored.Clock, stored.Partitions, stored.Window
	i.Snapshots = len(stored.records)
	for _, r := range stored.records {
		i.SnapshotBytes += int64(len(r.Key) + len(r.Value))
	}
	if stored.Low < bounds.Start {
		i.Fault = "prov.steps no longer holds the records that open runs began with"
	}
	if !replay || i.Fault != "" {
		return i, nil
	}
	t, err := s.rebuild(ctx, in, stored)
	if err != nil {
		return i, err
	}
	stats := t.window.Stats()
	i.Runs = t.window.OpenRuns()
	i.Stats, i.Loaded, i.Replayed = &stats, t.loaded, t.replayed
	if clock, ok := t.window.Clock(); ok {
		i.Clock = &clock
	}
	return i, nil
}
