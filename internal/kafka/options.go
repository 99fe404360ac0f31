package kafka

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/topics"
)

// connect makes the client. The producer id comes first, with a client of its
// own: that fences a former process of this name and finishes what it left
// open. Otherwise its undecided transaction hides the committed offsets from
// the group's new session.
func (l *Loop) connect(ctx context.Context) error {
	base, err := l.cfg.options()
	if err != nil {
		return Fatal(err)
	}
	base = slices.Clip(base) // two clients append to it
	writes, err := l.cfg.producerOptions()
	if err != nil {
		return Fatal(err)
	}
	if !l.cfg.NoTransactions {
		id := TransactionalID(l.cfg.Prefix, l.cfg.Service, l.cfg.Instance)
		cl, err := kgo.NewClient(append(base, kgo.WithLogger(NewLogger(l.log)), kgo.TransactionalID(id), kgo.TransactionTimeout(transactionTimeout))...)
		if err != nil {
			return Fatal(fmt.Errorf("kafka client: %w", err))
		}
		_, _, err = cl.ProducerID(ctx)
		cl.Close()
		if err != nil {
			return fmt.Errorf("producer id of %s: %w", id, err)
		}
	}
	if l.session, err = newSession(l.cfg.NoTransactions, append(base, l.options(writes)...)); err != nil {
		return Fatal(fmt.Errorf("kafka client: %w", err))
	}
	return nil
}

func (l *Loop) options(writes []kgo.Opt) []kgo.Opt {
	reset := kgo.NoResetOffset()
	if l.spec.Resets {
		reset = kgo.NewOffset().AtStart()
	}
	perPartition := int32(partitionBytes)
	if l.spec.Align > 0 {
		perPartition = alignedBytes
	}
	opts := []kgo.Opt{
		kgo.WithLogger(NewLogger(l.log)),
		kgo.ConsumerGroup(l.cfg.Group),
		kgo.InstanceID(l.cfg.Instance),
		kgo.SessionTimeout(l.cfg.SessionTimeout),
		kgo.HeartbeatInterval(min(heartbeatInterval, l.cfg.SessionTimeout/3)),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.BlockRebalanceOnPoll(),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The markers of transactional producers come along, so that committed
		// offsets reach the end of a partition: lag 0 is lag 0, and the clock
		// passes them.
		kgo.KeepControlRecords(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(reset),
		kgo.FetchMaxWait(l.cfg.FetchWait),
		kgo.WithPools(new(fetchPool)),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.BrokerMaxReadBytes(fetchBytes + 16<<20), // a fetch may exceed its limit by a batch
		kgo.FetchMaxPartitionBytes(perPartition),
		kgo.MetadataMaxAge(metadataAge),
		kgo.OnPartitionsAssigned(l.assigned),
		kgo.OnPartitionsRevoked(l.lost),
		kgo.OnPartitionsLost(l.lost),
	}
	opts = append(opts, writes...)
	if l.spec.OldTimestamps {
		// The client counts the time for delivery from a record's timestamp. The
		// flush before a commit is bounded anyhow.
		opts = append(opts, kgo.RecordDeliveryTimeout(0))
	}
	if l.spec.clientHooks != nil {
		opts = append(opts, kgo.WithHooks(l.spec.clientHooks()...))
	}
	if !l.cfg.NoTransactions {
		opts = append(opts,
			kgo.TransactionalID(TransactionalID(l.cfg.Prefix, l.cfg.Service, l.cfg.Instance)),
			kgo.TransactionTimeout(transactionTimeout))
	}
	names := make([]string, len(l.spec.Topics))
	for i, t := range l.spec.Topics {
		if names[i] = l.cfg.Prefix + t; l.spec.Regex {
			names[i] = "^" + regexp.QuoteMeta(l.cfg.Prefix) + t + "$"
		}
	}
	opts = append(opts, kgo.ConsumeTopics(names...))
	if l.spec.Regex {
		opts = append(opts, kgo.ConsumeRegex())
	}
	return opts
}

// producerOptions are those of everything that writes to the prov.* topics.
// Every record names its partition. The linger is long for the sake of large
// batches: the end of a transaction flushes what lingers.
func (c Config) producerOptions() ([]kgo.Opt, error) {
	codec, err := Codec(c.Compression)
	if err != nil {
		return nil, fmt.Errorf("compression: %w", err)
	}
	limits := make(map[string]int32)
	for _, t := range topics.All() {
		if t.MaxMessageBytes != 0 {
			limits[c.Prefix+t.Name] = int32(t.MaxMessageBytes)
		}
	}
	return []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if n, ok := limits[topic]; ok {
				return n
			}
			return defaultMessageBytes
		}),
		kgo.ProducerLinger(25 * time.Millisecond),
		kgo.ProducerBatchCompression(codec, kgo.NoCompression()),
		kgo.MaxBufferedRecords(1 << 17),
		kgo.RecordDeliveryTimeout(endTimeout),
		// A broker that has just come back may not know a topic for a while. The
		// default, four looks, is meant for looks that are seconds apart.
		kgo.UnknownTopicRetries(100),
	}, nil
}

// Codec is the compression of a name: none, snappy, lz4 or zstd.
func Codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("%q is none of none, snappy, lz4, zstd", name)
}
