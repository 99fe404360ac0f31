package processes

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/topics"
)

// Drain waits until ingest has read everything and the topics that runs and
// evidence go to have stood still for the time quiet. It fails when the
// context ends, or when an instance ends by itself.
func (d *Deployment) Drain(ctx context.Context, client *kgo.Client, quiet time.Duration) error {
	adm := kadm.NewClient(client)
	last, since := int64(-1), time.Now()
	for {
		if err := d.Unexpected(); err != nil {
			return err
		}
		lag, outputs, err := d.progress(ctx, adm)
		if err == nil && (outputs != last || lag != 0) {
			last, since = outputs, time.Now()
		}
		if err == nil && time.Since(since) > quiet {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not drained: lag %d, outputs %d, last error %v: %w", lag, outputs, err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// progress is the lag of ingest in records, and the sum of the end offsets of the
// outputs. (The others always seem to lag: the aggregator reads the ticks that it
// writes, and the signer's offsets stand before the markers of transactions.)
func (d *Deployment) progress(ctx context.Context, adm *kadm.Client) (lag, outputs int64, err error) {
	lags, err := adm.Lag(ctx, d.Prefix+"provstream-ingest")
	if err != nil {
		return 0, 0, err
	}
	for _, l := range lags.Sorted() {
		if err := l.Error(); err != nil {
			return 0, 0, err
		}
		lag += l.Lag.Total()
	}
	ends, err := adm.ListEndOffsets(ctx, d.Prefix+topics.Runs, d.Prefix+topics.DAGs, d.Prefix+topics.Turns, d.Prefix+topics.Sessions)
	if err != nil {
		return 0, 0, err
	}
	if err := ends.Error(); err != nil {
		return 0, 0, err
	}
	ends.Each(func(o kadm.ListedOffset) { outputs += o.Offset })
	return lag, outputs, nil
}
