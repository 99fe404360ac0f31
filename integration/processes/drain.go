package processes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/topics"
)

// drainPatience is how long the outputs must stand still while runs are open: they
// may have nothing to close them, or a service may be on its way back from a
// freeze and the clock stands.
const drainPatience = 45 * time.Second

// Drain waits until the topics that runs and evidence go to have stood still for
// the time quiet and no service has a record before it that it has not read. It
// fails when the context ends, or when an instance ends by itself.
func (d *Deployment) Drain(ctx context.Context, client *kgo.Client, opts []kgo.Opt, quiet time.Duration) error {
	adm := kadm.NewClient(client)
	last, since := int64(-1), time.Now()
	what := "nothing yet"
	told := since
	for {
		pause := 100 * time.Millisecond
		if err := d.Unexpected(); err != nil {
			return err
		}
		outputs, err := d.outputs(ctx, adm)
		if err == nil && outputs != last {
			last, since = outputs, time.Now()
			what = fmt.Sprintf("outputs at %d", outputs)
		}
		if err == nil && time.Since(since) > quiet {
			var unread int64
			if unread, what, err = d.unread(ctx, adm, opts); err == nil && unread == 0 {
				var log *Replay
				if log, err = ReplayLog(ctx, opts, d.Prefix, d.Windows); err == nil && (log.done() || time.Since(since) > max(quiet, drainPatience)) {
					return nil
				}
				if err == nil {
					what = fmt.Sprintf("%d records of open runs", log.Open)
				}
			}
			pause = time.Second
		}
		if d.Log != nil && time.Since(told) > drainPatience {
			d.Log("not drained yet: %s, the last output %v ago, error %v", what, time.Since(since).Round(time.Second), err)
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not drained: %s, last error %v: %w", what, err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// outputs is the sum of the end offsets of the topics that the services write
// for others.
func (d *Deployment) outputs(ctx context.Context, adm *kadm.Client) (n int64, err error) {
	ends, err := adm.ListEndOffsets(ctx, d.Prefix+topics.Runs, d.Prefix+topics.DAGs, d.Prefix+topics.Turns, d.Prefix+topics.Sessions)
	if err != nil {
		return 0, err
	}
	if err := ends.Error(); err != nil {
		return 0, err
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}

// unread counts the records that stand committed behind the offsets of the
// services' groups. Ticks do not count, nor do markers and aborted records, which
// a lag in offsets would count.
func (d *Deployment) unread(ctx context.Context, adm *kadm.Client, opts []kgo.Opt) (n int64, what string, err error) {
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return 0, "", err
	}
	inputs := map[string]func(topic string) bool{
		"ingest": func(t string) bool {
			return t == d.Prefix+topics.Decisions || strings.HasPrefix(t, d.Prefix+topics.HookPrefix)
		},
		"aggregator": func(t string) bool { return t == d.Prefix+topics.Steps },
		"signer":     func(t string) bool { return t == d.Prefix+topics.Runs || t == d.Prefix+topics.Coverage },
	}
	for _, service := range Services {
		committed, err := adm.FetchOffsets(ctx, d.Prefix+"provstream-"+service)
		if err != nil {
			return 0, "", err
		}
		for topic := range all {
			if !inputs[service](topic) {
				continue
			}
			from := make(map[int32]int64)
			for p := range all[topic].Partitions {
				if o, ok := committed.Lookup(topic, p); ok && o.At >= 0 {
					from[p] = o.At
				}
			}
			err := readTopic(ctx, opts, topic, from, func(r *kgo.Record) error {
				if _, tick := codec.DecodeTick(r.Value); !tick {
					n++
					what = fmt.Sprintf("%s has not read %s/%d@%d", service, r.Topic, r.Partition, r.Offset)
				}
				return nil
			})
			if err != nil {
				return 0, "", err
			}
		}
	}
	return n, what, nil
}
