package window

import "time"

// Config holds the graces, idle times and bounds of a partition's windows.
// Times are those of the log's clock.
type Config struct {
	CompleteGrace time.Duration // a turn closes this long after its turnEnd when its count is met
	Grace         time.Duration // ... when it is not
	SealGrace     time.Duration // a run seals this long after its sessionEnd
	TurnIdle      time.Duration // a turn without turnEnd closes this long after its last step
	SessionIdle   time.Duration // a run without sessionEnd seals this long after its last record
	LateGrace     time.Duration // a segment of an ended run seals this long after its last record
	LateRetention time.Duration // how long an ended run is remembered
	IdleRetention time.Duration // how long a run that was sealed by idle or pressure is remembered

	MaxRunWeight int64 // bytes: a segment seals by size; its DAG is smaller than twice this
	MaxOpenSteps int   // records a partition holds open before it seals the run silent for longest
	MaxRunIDs    int   // hashes remembered of a run's sealed segments
}

// DefaultConfig returns the defaults of the command line.
func DefaultConfig() Config {
	return Config{
		CompleteGrace: time.Second,
		Grace:         10 * time.Second,
		SealGrace:     10 * time.Second,
		TurnIdle:      15 * time.Minute,
		SessionIdle:   time.Hour,
		LateGrace:     time.Minute,
		LateRetention: 10 * time.Minute,
		IdleRetention: 24 * time.Hour,
		MaxRunWeight:  4 << 20,
		MaxOpenSteps:  2_000_000,
		MaxRunIDs:     200_000,
	}
}
