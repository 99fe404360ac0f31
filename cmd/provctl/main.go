// Command provctl is provstream for people: it runs the whole pipeline in one
// process, creates topics and keys, makes and replays fleets of envelopes, and
// checks and shows what the services wrote.
//
// One file a subcommand: a struct with kong tags, a Help method that shows an
// example, and Run(*globals) error. A command has no logic of its own; it reads
// flags, calls a package under internal/ (or the public verify) and prints.
//
// Exit status: 0 what was checked holds, 1 it does not hold ([errDoesNotHold]),
// 2 the command could not run. With --json stdout is exactly one JSON document;
// progress goes to stderr, and only when that is a terminal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"provstream/internal/kafka"
)

// cli is the grammar: one field a subcommand.
type cli struct {
	JSON bool `help:"Print one JSON document on stdout instead of text."`

	Demo       demoCmd       `cmd:"" group:"run" help:"Run the whole pipeline on a fleet and prove the result."`
	Up         upCmd         `cmd:"" group:"run" help:"Run broker and pipeline until stopped."`
	Bench      benchCmd      `cmd:"" group:"run" help:"Load, drain and measure the pipeline."`
	BenchChild benchChildCmd `cmd:"" hidden:"" help:"A process of bench."`
	Generate   generateCmd   `cmd:"" group:"fleet" help:"Write a synthetic fleet as JSONL."`
	Replay     replayCmd     `cmd:"" group:"fleet" help:"Send a fleet's JSONL to the hook topics."`
	Topics     topicsCmd     `cmd:"" group:"cluster" help:"Create, check and list topics."`
	Doctor     doctorCmd     `cmd:"" group:"cluster" help:"Tell what is wrong with a deployment, and what to do."`
	State      stateCmd      `cmd:"" group:"cluster" help:"Look into the aggregator's stored state."`
	Keys       keysCmd       `cmd:"" group:"keys" help:"Make, rotate and publish keys."`
	Verify     verifyCmd     `cmd:"" group:"evidence" help:"Check signed DAGs and their logs with pinned public keys."`
	Coverage   coverageCmd   `cmd:"" group:"evidence" help:"What was read of each hook partition, what was not, and whether the signed log covers it."`
	Export     exportCmd     `cmd:"" group:"evidence" help:"Write a run as a signed export that Kindgi's tools verify."`
	Show       showCmd       `cmd:"" group:"evidence" help:"Show one run: as a tree, a graph, or why an output depends on its sources."`
	Schema     schemaCmd     `cmd:"" group:"evidence" help:"List and print the JSON Schemas of what is read and written."`
	Redrive    redriveCmd    `cmd:"" group:"cluster" help:"Send dead letters back to the topics they came from."`
	Canary     canaryCmd     `cmd:"" group:"cluster" help:"Send synthetic sessions and verify their DAGs, again and again."`
	Reconcile  reconcileCmd  `cmd:"" group:"evidence" help:"Prove that nothing was lost, repeated or altered between hook records and signed graphs."`

	Help       helpCmd       `cmd:"" help:"Show the help of a command."`
	Completion completionCmd `cmd:"" help:"Print what a shell needs to complete provctl's command lines."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"Candidates for a command line."`
	Man        manCmd        `cmd:"" help:"Print the manual page."`
}

// errDoesNotHold is wrapped by commands whose check ran and failed.
var errDoesNotHold = errors.New("does not hold")

// globals is what every subcommand gets.
type globals struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	json   bool
	// tty: stderr is a terminal, so progress may be shown.
	tty bool
	// color: stdout is a terminal and NO_COLOR is not set.
	color bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default action is back: a second one ends at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments; it returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	g := &globals{
		ctx: ctx, stdin: os.Stdin, stdout: stdout, stderr: stderr, getenv: getenv,
		tty:   isTerminal(stderr),
		color: isTerminal(stdout) && getenv("NO_COLOR") == "",
	}
	if len(args) > 0 && args[0] == "help" && !slices.Contains(args, "--help") {
		args = append(slices.Clone(args[1:]), "--help")
	}
	var c cli
	exited := false
	status := 0
	parser, err := newParser(&c,
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited, status = true, code }), // --help
		kong.Bind(g),
	)
	if err != nil {
		fmt.Fprintln(stderr, "provctl:", err)
		return 2
	}
	command, err := parser.Parse(args)
	if exited {
		return status
	}
	if err != nil {
		fmt.Fprintln(stderr, "provctl:", err)
		var perr *kong.ParseError
		if errors.As(err, &perr) && perr.Context != nil && perr.Context.Command() == "" {
			fmt.Fprintln(stderr, "provctl: run `provctl --help` for the commands")
		}
		return 2
	}
	g.json = c.JSON
	return g.exit(explainRights(command.Run(g), command.Command()))
}

// roles are those whose rights the commands need: the roles of
// `provctl topics acls`, by a command's first word.
var roles = map[string]string{
	"replay": "agent", "canary": "canary",
	"verify": "reader", "show": "reader", "export": "reader",
	"coverage": "auditor", "reconcile": "auditor",
	"topics": "operator", "keys": "operator", "state": "operator", "redrive": "operator", "doctor": "operator",
}

// explainRights says, where the brokers refused something, which rights the
// command needs.
func explainRights(err error, command string) error {
	name, _, _ := strings.Cut(command, " ")
	role := roles[name]
	if role == "" || !kafka.Refused(err) || strings.Contains(err.Error(), "topics acls") {
		return err
	}
	return fmt.Errorf("%w; `provctl topics acls --role %s` prints the rights that this needs", err, role)
}

// newParser builds the command line's grammar.
func newParser(c *cli, opts ...kong.Option) (*kong.Kong, error) {
	return kong.New(c, append([]kong.Option{
		kong.Name("provctl"),
		kong.Description("Signed provenance graphs from ACS hook envelopes on Kafka."),
		kong.DefaultEnvars("PROVSTREAM"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "run", Title: "Run the pipeline"},
			{Key: "fleet", Title: "Make and send envelopes"},
			{Key: "cluster", Title: "Look after a cluster"},
			{Key: "keys", Title: "Keys"},
			{Key: "evidence", Title: "Read and check the evidence"},
		}),
	}, opts...)...)
}

// exit prints a command's error and turns it into the exit status.
func (g *globals) exit(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDoesNotHold):
		fmt.Fprintln(g.stderr, "provctl:", err)
		return 1
	default:
		fmt.Fprintln(g.stderr, "provctl:", err)
		return 2
	}
}

// isTerminal tells whether w is a character device, which is what a terminal
// is and a pipe or a file is not.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
