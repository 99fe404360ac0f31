package processes

import (
	"context"
	"strings"
	"time"

	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafka"
	"provstream/internal/load"
)

// Feed sends a generated fleet to the hook topics at a rate (records a second),
// as live agents do: the event times end about now, and each record's Kafka
// timestamp is the moment it is sent. It calls sent before each record and
// returns when all are acknowledged.
func (d *Deployment) Feed(ctx context.Context, cfg generate.Config, rate float64, sent func()) error {
	gen, err := generate.New(cfg)
	if err != nil {
		return err
	}
	sender, err := load.NewSender(kafka.Flags{Brokers: strings.Split(d.Brokers, ","), Prefix: d.Prefix}, load.Options{Rate: rate, CreateTopics: true})
	if err != nil {
		return err
	}
	defer sender.Close()
	if err := each(ctx, gen, sender, sent); err != nil {
		return err
	}
	return sender.Flush(ctx)
}

func each(ctx context.Context, gen *generate.Generator, sender *load.Sender, sent func()) error {
	source := func(f func(*fleet.Record) error) error {
		for r := range gen.All() {
			if err := f(&r); err != nil {
				return err
			}
		}
		return nil
	}
	return fleet.Copies{N: 1, Parallel: 1, LastMs: time.Now().UnixMilli()}.Each(source, func(r *fleet.Record) error {
		sent()
		var err error
		// A broker may be away for a while: a topic that cannot be looked up now
		// can be in a moment.
		for begin := time.Now(); time.Since(begin) < patience && ctx.Err() == nil; time.Sleep(250 * time.Millisecond) {
			r.TimeMs = time.Now().UnixMilli()
			if err = sender.Send(ctx, r); err == nil {
				return nil
			}
		}
		return err
	})
}

// patience is how long a record may fail to be sent.
const patience = 30 * time.Second
