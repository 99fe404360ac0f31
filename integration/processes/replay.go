package processes

import (
	"bytes"
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/topics"
	"provstream/internal/window"
)

// Replay is an undisturbed run of the window machine over prov.steps as it was
// recorded, ticks included.
type Replay struct {
	Records     int64 // of prov.steps
	DAGs        int64
	Open        int      // records of runs that the log leaves open
	Differences []string // to what stands on prov.runs; at most ten are told
}

// ReplayLog runs the pure core over each partition of prov.steps, in one go and
// without a broker beside it, and compares what it emits with prov.runs: the same
// DAGs in the same order, byte for byte, createdAt included. Every decision is a
// function of the log, so whatever happened to the services has left no trace.
func ReplayLog(ctx context.Context, opts []kgo.Opt, prefix string, cfg window.Config) (*Replay, error) {
	r := new(Replay)
	emitted := make(map[int32][]emission)
	machines := make(map[int32]*window.Partition)
	var step acs.Step
	err := ReadTopic(ctx, opts, prefix+topics.Steps, func(rec *kgo.Record) error {
		r.Records++
		m := machines[rec.Partition]
		if m == nil {
			m = window.NewPartition(cfg)
			machines[rec.Partition] = m
		}
		emit := func(e window.Emission) {
			if e.Kind == window.Run {
				emitted[rec.Partition] = append(emitted[rec.Partition], emission{e.Key, bytes.Clone(e.Value)})
			}
		}
		if t, ok := codec.DecodeTick(rec.Value); ok {
			m.Tick(rec.Offset, t, emit)
			return nil
		}
		if err := codec.DecodeStep(&step, rec.Value); err != nil {
			return fmt.Errorf("%s/%d@%d: %w", rec.Topic, rec.Partition, rec.Offset, err)
		}
		m.Apply(rec.Offset, &step, emit)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		r.Open += m.Stats().OpenSteps
	}
	next := make(map[int32]int)
	err = ReadTopic(ctx, opts, prefix+topics.Runs, func(rec *kgo.Record) error {
		i := next[rec.Partition]
		next[rec.Partition]++
		r.DAGs++
		switch want := emitted[rec.Partition]; {
		case i >= len(want):
			r.differ("%s/%d@%d: DAG %d of the partition is not in the replay", rec.Topic, rec.Partition, rec.Offset, i)
		case want[i].key != string(rec.Key) || !bytes.Equal(want[i].value, rec.Value):
			r.differ("%s/%d@%d: DAG %d of the partition is of %s, the replay's of %s, or their bytes differ",
				rec.Topic, rec.Partition, rec.Offset, i, rec.Key, want[i].key)
		}
		return nil
	})
	for p, want := range emitted {
		if n := next[p]; n < len(want) {
			r.differ("partition %d: the replay gives %d DAGs, %d stand on prov.runs", p, len(want), n)
		}
	}
	return r, err
}

type emission struct {
	key   string
	value []byte
}

func (r *Replay) differ(format string, args ...any) {
	if len(r.Differences) < 10 {
		r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
	}
}

// done reports whether the log leaves nothing open and everything it gives
// stands on prov.runs.
func (r *Replay) done() bool { return r.Open == 0 && len(r.Differences) == 0 }
