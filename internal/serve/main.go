package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"provstream/internal/kafka"
)

// Command is a service's command line. It is filled by kong; it embeds [Flags].
type Command interface {
	common() Flags
	// Prepare turns the flags into values, all faults together, and returns the
	// service: nothing runs yet.
	Prepare() (func(ctx context.Context, s *Service) error, error)
}

func (f Flags) common() Flags { return f }

// Main is the main function of a service: it runs until it is told to stop, and
// exits with status 1 when something is wrong. address is the default of
// --listen-metrics.
func Main(name, description, address string, c Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default action is back: a second one ends at once.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, name, description, address, c, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, name+":", strings.TrimPrefix(err.Error(), name+": "))
		os.Exit(1)
	}
}

// run is Main with its surroundings as arguments.
func run(ctx context.Context, name, description, address string, c Command, args []string, stdout, stderr io.Writer) error {
	var faults kafka.Faults
	done, err := parse(name, description, address, c, args, stdout, stderr, &faults)
	if done || err != nil {
		return err
	}
	flags := c.common()
	if flags.Probe && faults.Err() == nil {
		return flags.Ready(ctx)
	}
	start, err := c.Prepare()
	faults.Add(err)
	if err := faults.Err(); err != nil {
		return err
	}
	if flags.PrintConfig {
		return PrintConfig(stdout, c)
	}
	s := New(name, flags, stderr)
	return s.Run(ctx, func(ctx context.Context) error { return start(ctx, s) })
}
