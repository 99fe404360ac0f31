// Package processes runs provstream's services as processes of their own against
// a cluster, for tests and trials that kill, pause and restart them, and reads
// what they wrote.
package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/window"
	"provstream/verify"
)

// Services in the order of the data flow.
var Services = []string{"ingest", "aggregator", "signer"}

// Build compiles the services and provctl into a folder.
func Build(ctx context.Context, dir string) error {
	root, err := kafkatest.ModuleRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./cmd/...")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	return nil
}

// Deployment is one set of topics and the services on it.
type Deployment struct {
	Bin     string // the folder of the binaries
	Dir     string // logs and keys
	Brokers string
	Prefix  string
	Windows window.Config // when the aggregator closes things
	// Flags are further flags by service; those under "" are every service's.
	Flags map[string][]string
	// BrokersOf, if not nil, gives the addresses that an instance starts from
	// in the place of Brokers: a network of its own.
	BrokersOf func(service string, instance int) string
	// Log, if not nil, is told what a long wait waits for.
	Log func(format string, a ...any)

	mu        sync.Mutex
	processes []*Process
}

// Keys is the deployment's key directory, JWKS the file of its public keys.
func (d *Deployment) Keys() string { return filepath.Join(d.Dir, "keys") }

// JWKS is the file with the public keys, which checks pin.
func (d *Deployment) JWKS() string { return filepath.Join(d.Dir, "jwks.json") }

// NewKeys makes a log key and a DAG key.
func (d *Deployment) NewKeys() error {
	if err := os.MkdirAll(d.Keys(), 0o700); err != nil {
		return err
	}
	for file, use := range map[string]verify.Use{keys.LogFile: verify.UseLog, keys.DAGFile: verify.UseDAG} {
		k, err := keys.Generate(use, "")
		if err != nil {
			return err
		}
		if err := keys.WritePrivate(filepath.Join(d.Keys(), file), k); err != nil {
			return err
		}
	}
	ring, err := keys.Load(d.Keys())
	if err != nil {
		return err
	}
	return os.WriteFile(d.JWKS(), verify.JWKS(ring.Public()), 0o644)
}

// Reconcile runs the oracle and returns its report. An error says that something
// does not hold, or that it could not run.
func (d *Deployment) Reconcile(ctx context.Context) ([]byte, error) {
	args := append([]string{"reconcile", "--json", "--jwks", d.JWKS()}, d.windowFlags()...)
	return d.Provctl(ctx, args...)
}

// windowFlags are those of the aggregator, which reconcile takes too.
func (d *Deployment) windowFlags() []string {
	w := d.Windows
	return []string{
		"--complete-grace=" + w.CompleteGrace.String(), "--grace=" + w.Grace.String(), "--seal-grace=" + w.SealGrace.String(),
		"--turn-idle=" + w.TurnIdle.String(), "--session-idle=" + w.SessionIdle.String(), "--late-grace=" + w.LateGrace.String(),
		"--late-retention=" + w.LateRetention.String(), "--idle-retention=" + w.IdleRetention.String(),
	}
}

// Provctl runs a command of provctl and returns what it prints. Commands that
// name a cluster get it by the environment.
func (d *Deployment) Provctl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(d.Bin, "provctl"), args...)
	cmd.Env = append(os.Environ(), "PROVSTREAM_BROKERS="+d.Brokers, "PROVSTREAM_PREFIX="+d.Prefix)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("provctl %s: %w: %s", strings.Join(args, " "), err, tail(stderr.Bytes(), 4000))
	}
	return out, nil
}

func tail(b []byte, n int) []byte {
	b = bytes.TrimSpace(b)
	return b[max(0, len(b)-n):]
}

// Process is one instance of a service. Its methods are not safe for concurrent
// use with each other.
type Process struct {
	Service  string
	Instance int
	Log      string // file; all lives of the instance append to it
	Metrics  string // host:port of its /metrics

	deployment *Deployment
	cmd        *exec.Cmd
	ended      chan struct{}
	err        error // of the process, once ended is closed
	paused     bool
	kills      int
}

// Start starts an instance of a service.
func (d *Deployment) Start(service string, instance int) (*Process, error) {
	port, err := kafkatest.FreePort()
	if err != nil {
		return nil, err
	}
	x := &Process{
		Service: service, Instance: instance, deployment: d, Metrics: "127.0.0.1:" + strconv.Itoa(port),
		Log: filepath.Join(d.Dir, fmt.Sprintf("%s-%d.log", service, instance)),
	}
	if err := x.Start(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.processes = append(d.processes, x)
	return x, nil
}

// StartAll starts one instance of each service.
func (d *Deployment) StartAll() error {
	for _, s := range Services {
		if _, err := d.Start(s, 0); err != nil {
			return err
		}
	}
	return nil
}

// Processes are the instances that were started.
func (d *Deployment) Processes() []*Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*Process(nil), d.processes...)
}

// Get returns an instance.
func (d *Deployment) Get(service string, instance int) *Process {
	for _, x := range d.Processes() {
		if x.Service == service && x.Instance == instance {
			return x
		}
	}
	return nil
}

// Stop ends all instances gracefully, those of the first service first, and
// forgets them.
func (d *Deployment) Stop() error {
	var errs []error
	for _, service := range Services {
		for _, x := range d.Processes() {
			if x.Service == service {
				errs = append(errs, x.Stop())
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.processes = nil
	return errors.Join(errs...)
}

// Close ends whatever still runs, at once.
func (d *Deployment) Close() {
	for _, x := range d.Processes() {
		x.Kill()
	}
}

// Unexpected returns an error for each instance that ended without being told.
func (d *Deployment) Unexpected() error {
	var errs []error
	for _, x := range d.Processes() {
		if err := x.Unexpected(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Start starts the instance again after it ended.
func (x *Process) Start() error {
	log, err := os.OpenFile(x.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	brokers := x.deployment.Brokers
	if f := x.deployment.BrokersOf; f != nil {
		brokers = f(x.Service, x.Instance)
	}
	args := []string{
		"--brokers", brokers, "--instance", strconv.Itoa(x.Instance), "--listen-metrics", x.Metrics,
	}
	if x.deployment.Prefix != "" {
		args = append(args, "--prefix", x.deployment.Prefix)
	}
	switch x.Service {
	case "aggregator":
		args = append(args, x.deployment.windowFlags()...)
	case "signer":
		args = append(args, "--keys", x.deployment.Keys())
	}
	args = append(args, x.deployment.Flags[""]...)
	args = append(args, x.deployment.Flags[x.Service]...)
	x.cmd = exec.Command(filepath.Join(x.deployment.Bin, x.Service), args...)
	x.cmd.Stdout, x.cmd.Stderr = log, log
	// Several processes share the machine's cores here.
	x.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(runtime.GOMAXPROCS(0)))
	if err := x.cmd.Start(); err != nil {
		return err
	}
	x.ended, x.paused = make(chan struct{}), false
	go func() {
		x.err = x.cmd.Wait()
		close(x.ended)
	}()
	return nil
}

// Kill sends SIGKILL and waits for the end.
func (x *Process) Kill() {
	x.kills++
	_ = x.cmd.Process.Kill()
	<-x.ended
}

// Signal sends a signal and does not wait.
func (x *Process) Signal(sig os.Signal) error { return x.cmd.Process.Signal(sig) }

// Pause sends SIGSTOP, Resume SIGCONT.
func (x *Process) Pause() error {
	x.paused = true
	return x.cmd.Process.Signal(syscall.SIGSTOP)
}

// Resume lets a paused instance go on.
func (x *Process) Resume() error {
	x.paused = false
	return x.cmd.Process.Signal(syscall.SIGCONT)
}

// stopTimeout is how long a graceful stop may take.
const stopTimeout = 60 * time.Second

// Stop sends SIGTERM and waits. It is an error if the instance had ended before
// or does not end well.
func (x *Process) Stop() error {
	if err := x.Unexpected(); err != nil {
		return err
	}
	if x.paused {
		if err := x.Resume(); err != nil {
			return err
		}
	}
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s-%d: %w", x.Service, x.Instance, err)
	}
	select {
	case <-x.ended:
	case <-time.After(stopTimeout):
		x.Kill()
		return fmt.Errorf("%s-%d did not stop within %v: %s", x.Service, x.Instance, stopTimeout, x.LogTail())
	}
	if x.err != nil {
		return fmt.Errorf("%s-%d: at its stop: %w: %s", x.Service, x.Instance, x.err, x.LogTail())
	}
	return nil
}

// Running tells whether the process lives.
func (x *Process) Running() bool {
	select {
	case <-x.ended:
		return false
	default:
		return true
	}
}

// Unexpected returns an error if the process has ended by itself.
func (x *Process) Unexpected() error {
	if x.Running() {
		return nil
	}
	return fmt.Errorf("%s-%d ended by itself: %v: %s", x.Service, x.Instance, x.err, x.LogTail())
}

// LogTail is the end of the instance's log.
func (x *Process) LogTail() string {
	b, err := os.ReadFile(x.Log)
	if err != nil {
		return err.Error()
	}
	return string(tail(b, 700))
}
