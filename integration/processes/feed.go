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
// returns when all are acknowledged. It outlives a broker that is away for a while;
// what was on its way then may be there or not.
func (d *Deployment) Feed(ctx context.Context, cfg generate.Config, rate float64, sent func()) error {
	gen, err := generate.New(cfg)
	if err != nil {
		return err
	}
	f := &feed{flags: kafka.Flags{Brokers: strings.Split(d.Brokers, ","), Prefix: d.Prefix}, rate: rate}
	defer f.close()
	source := func(each func(*fleet.Record) error) error {
		for r := range gen.All() {
			if err := each(&r); err != nil {
				return err
			}
		}
		return nil
	}
	err = fleet.Copies{N: 1, Parallel: 1, LastMs: time.Now().UnixMilli()}.Each(source, func(r *fleet.Record) error {
		sent()
		return f.retry(ctx, func(s *load.Sender) error {
			r.TimeMs = time.Now().UnixMilli()
			return s.Send(ctx, r)
		})
	})
	if err != nil {
		return err
	}
	return f.retry(ctx, func(s *load.Sender) error { return s.Flush(ctx) })
}

// feed is a sender that is made anew when it has failed.
type feed struct {
	flags  kafka.Flags
	rate   float64
	sender *load.Sender
}

// patience is how long a cluster may be away.
const patience = time.Minute

func (f *feed) retry(ctx context.Context, do func(*load.Sender) error) error {
	for begin := time.Now(); ; time.Sleep(250 * time.Millisecond) {
		var err error
		if f.sender == nil {
			f.sender, err = load.NewSender(f.flags, load.Options{Rate: f.rate, CreateTopics: true})
		}
		if err == nil {
			err = do(f.sender)
		}
		if err == nil || ctx.Err() != nil || time.Since(begin) > patience {
			return err
		}
		f.close()
	}
}

func (f *feed) close() {
	if f.sender != nil {
		f.sender.Close()
		f.sender = nil
	}
}
