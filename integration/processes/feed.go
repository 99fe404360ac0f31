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
	source := func(f func(*fleet.Record) error) error {
		for r := range gen.All() {
			if err := f(&r); err != nil {
				return err
			}
		}
		return nil
	}
	err = fleet.Copies{N: 1, Parallel: 1, LastMs: time.Now().UnixMilli()}.Each(source, func(r *fleet.Record) error {
		sent()
		r.TimeMs = time.Now().UnixMilli()
		return sender.Send(ctx, r)
	})
	if err != nil {
		return err
	}
	return sender.Flush(ctx)
}
