package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
)

// ServiceFlags are the flags that the three services share. Embed the struct in
// a kong command; [ServiceFlags.Config] turns the text into values.
type ServiceFlags struct {
	Flags

	Deployment     string `help:"Name of the deployment: the first part of the logs' origins." default:"provstream" env:"PROVSTREAM_DEPLOYMENT"`
	Instance       string `help:"Name of this instance, stable over restarts and unique in the service; the host name when empty." env:"PROVSTREAM_INSTANCE"`
	Group          string `help:"Consumer group; <prefix>provstream-<service> when empty." env:"PROVSTREAM_GROUP"`
	CommitInterval string `help:"A transaction commits so long after its first record." default:"100ms" env:"PROVSTREAM_COMMIT_INTERVAL"`
	SessionTimeout string `help:"An instance that is silent so long loses its partitions." default:"15s" env:"PROVSTREAM_SESSION_TIMEOUT"`
	LeaveOnStop    bool   `help:"Leave the group at a graceful stop, so that the partitions move at once: for scaling down." env:"PROVSTREAM_LEAVE_ON_STOP"`
	Compression    string `help:"Of the batches that the service writes: none, snappy, lz4 or zstd." default:"snappy" env:"PROVSTREAM_COMPRESSION"`
	Transactions   string `help:"on, or off for measurements only: without transactions a crash repeats output." default:"on" env:"PROVSTREAM_TRANSACTIONS"`
}

// defaultCompression makes batches as small as lz4 does on these texts, for 1 µs of
// CPU a record less in ingest alone: its Go implementation has assembly.
const defaultCompression = "snappy"

// Config of a service's loop, as values.
type Config struct {
	Flags

	Service        string
	Deployment     string
	Instance       string
	Group          string
	CommitInterval time.Duration
	SessionTimeout time.Duration
	LeaveOnStop    bool
	// FetchWait is how long a broker holds a fetch for which it has no new
	// records. A partition that arrives is fetched when that is over, at the
	// latest.
	FetchWait time.Duration
	// Compression of the batches that are written: none, snappy, lz4 or zstd; ""
	// is snappy.
	Compression string
	// NoTransactions replaces transactions by idempotent writes followed by a
	// commit of offsets: to measure what they cost, nothing else.
	NoTransactions bool

	Logger *slog.Logger
}

// Config parses the flags for one service. All faults come together.
func (s ServiceFlags) Config(service string) (Config, error) {
	c := Config{
		Flags: s.Flags, Service: service, Deployment: s.Deployment, Instance: s.Instance, Group: s.Group, LeaveOnStop: s.LeaveOnStop,
		Compression: s.Compression,
	}
	var faults Faults
	faults.Add(s.Flags.Check())
	if _, err := Codec(cmp.Or(s.Compression, defaultCompression)); err != nil {
		faults.Add(fmt.Errorf("--compression: %w", err))
	}
	c.CommitInterval = faults.Duration("--commit-interval", s.CommitInterval, time.Millisecond, 5*time.Second)
	c.SessionTimeout = faults.Duration("--session-timeout", s.SessionTimeout, time.Second, 30*time.Minute)
	switch s.Transactions {
	case "on":
	case "off":
		c.NoTransactions = true
	default:
		faults.Add(fmt.Errorf("--transactions: %q is neither on nor off", s.Transactions))
	}
	for _, other := range []string{"ingest", "aggregator", "signer"} {
		if other != service && c.Group == DefaultGroup(c.Prefix, other) {
			faults.Add(fmt.Errorf("--group: %q is the group of the service %s: its members would take each other's partitions", c.Group, other))
		}
	}
	if c.Deployment == "" || strings.ContainsAny(c.Deployment, " \t\n+") {
		faults.Add(fmt.Errorf("--deployment: %q must not be empty and has no blank or '+': it begins the key names of the logs", c.Deployment))
	}
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			faults.Add(fmt.Errorf("--instance: %w", err))
		}
		c.Instance = host
	}
	return c, faults.Err()
}

// WithDefaults fills what a program that builds a Config by hand left out.
func (c Config) WithDefaults() Config {
	if c.Deployment == "" {
		c.Deployment = "provstream"
	}
	if c.Instance == "" {
		c.Instance = "0"
	}
	if c.Group == "" {
		c.Group = DefaultGroup(c.Prefix, c.Service)
	}
	if c.CommitInterval == 0 {
		c.CommitInterval = 100 * time.Millisecond
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = 15 * time.Second
	}
	if c.FetchWait == 0 {
		c.FetchWait = time.Second
	}
	if c.Compression == "" {
		c.Compression = defaultCompression
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// DefaultGroup is the consumer group of a service.
func DefaultGroup(prefix, service string) string { return prefix + "provstream-" + service }

// TransactionalID names the transactions of one instance of a service: the
// same after a restart, so that the new process fences the old one.
func TransactionalID(prefix, service, instance string) string {
	return prefix + "provstream-" + service + "-" + instance
}

// Faults collects what is wrong with a command line.
type Faults struct{ errs []error }

// Add a fault; nil is none.
func (f *Faults) Add(err error) {
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

// Err is all faults together, nil without any.
func (f *Faults) Err() error { return errors.Join(f.errs...) }

// Duration parses the value of a flag that must lie within bounds.
func (f *Faults) Duration(flag, s string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		f.Add(fmt.Errorf("%s: %q is no duration like 100ms, 10s or 1h", flag, s))
	case most == 0 && d < least:
		f.Add(fmt.Errorf("%s: %s is less than %s", flag, s, least))
	case d < least || most > 0 && d > most:
		f.Add(fmt.Errorf("%s: %s is not between %s and %s", flag, s, least, most))
	}
	return d
}

// Size parses a number of bytes, with one of the units KiB, MiB, GiB.
func (f *Faults) Size(flag, s string, least, most int64) int64 {
	number, unit := s, int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = n, u
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	switch {
	case err != nil || n > 1<<40/unit:
		f.Add(fmt.Errorf("%s: %q is no size like 65536, 64KiB or 1MiB", flag, s))
	case n*unit < least || n*unit > most:
		f.Add(fmt.Errorf("%s: %s is not between %d and %d bytes", flag, s, least, most))
	}
	return n * unit
}
