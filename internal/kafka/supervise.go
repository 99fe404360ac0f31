package kafka

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Supervise runs lives of a service until ctx ends or one fails for good. A
// life that ended in an error is followed by another, after a pause that grows
// while lives are short.
func Supervise(ctx context.Context, log *slog.Logger, life func(context.Context) error) error {
	const first, longest = 200 * time.Millisecond, 10 * time.Second
	pause := first
	for {
		began := time.Now()
		err := life(ctx)
		switch {
		case ctx.Err() != nil && !IsFatal(err):
			if err != nil && !errors.Is(err, context.Canceled) {
				log.Warn("the last transaction did not commit; what it held is done again at the next start", "error", err)
			}
			return nil
		case err == nil:
			return nil
		case IsFatal(err):
			return err
		}
		// A life that was longer than any pause was a good one: what ended it (a
		// freeze, a network that was cut) has nothing to do with its start.
		if time.Since(began) > longest {
			pause = first
		}
		log.Error("starting again from what is committed", "error", err, "pause", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}
