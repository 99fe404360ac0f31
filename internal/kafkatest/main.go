package kafkatest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// startedBrokers is the cluster that Main started.
var startedBrokers string

// Main runs a package's tests with an Apache Kafka of their own where
// KAFKATEST_START asks for one (the number of brokers) and KAFKA_BROKERS does not
// name one, and stops it afterwards. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }
func Main(m *testing.M) int {
	n, _ := strconv.Atoi(os.Getenv("KAFKATEST_START"))
	if n == 0 || os.Getenv("KAFKA_BROKERS") != "" {
		return m.Run()
	}
	k, err := StartApacheKafka(n)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafkatest:", err)
		return 1
	}
	startedBrokers = k.Brokers
	code := m.Run()
	if err := k.Wipe(); err != nil {
		fmt.Fprintln(os.Stderr, "kafkatest:", err)
	}
	return code
}

// ApacheKafka is a cluster that scripts/kafka runs.
type ApacheKafka struct {
	Brokers string // host:port,…
	Dir     string // one folder a node: node-1 …, with its pid, log and data
	script  string
	env     []string
}

// StartApacheKafka starts a cluster in a temporary folder, on free ports. The
// settings are further lines of server.properties.
func StartApacheKafka(nodes int, settings ...string) (*ApacheKafka, error) {
	port, err := FreePorts(nodes, 0)
	if err != nil {
		return nil, err
	}
	return StartApacheKafkaOn(port, nodes, func(int) []string { return settings })
}

// StartApacheKafkaOn starts a cluster whose brokers' plaintext listeners stand at
// a port of the caller's choice and the ones behind it, with settings for each
// node, from 1: for settings that name all listeners.
func StartApacheKafkaOn(port, nodes int, settings func(node int) []string) (*ApacheKafka, error) {
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kafkatest-")
	if err != nil {
		return nil, err
	}
	k := &ApacheKafka{Dir: dir, script: filepath.Join(root, "scripts", "kafka")}
	k.env = append(os.Environ(), "KAFKA_DIR="+dir, "KAFKA_PORT="+strconv.Itoa(port), "KAFKA_NODES="+strconv.Itoa(nodes))
	for node := 1; node <= nodes; node++ {
		k.env = append(k.env, fmt.Sprintf("KAFKA_SETTINGS_%d=%s", node, strings.Join(settings(node), "\n")))
	}
	if k.Brokers, err = k.Run("start"); err != nil {
		return nil, err
	}
	return k, nil
}

// StartApacheKafkaAt starts one node on a port of the caller's choice.
func StartApacheKafkaAt(port int, settings ...string) (*ApacheKafka, error) {
	return StartApacheKafkaOn(port, 1, func(int) []string { return settings })
}

// Run runs scripts/kafka for this cluster, e.g. Run("kill-node", "2"), and returns
// what it prints.
func (k *ApacheKafka) Run(args ...string) (string, error) {
	cmd := exec.Command(k.script, args...)
	cmd.Env = k.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/kafka %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Wipe stops the cluster and removes its folder.
func (k *ApacheKafka) Wipe() error {
	if _, err := k.Run("wipe"); err != nil {
		return err
	}
	return os.RemoveAll(k.Dir)
}

// FreePorts finds a port such that it and what scripts/kafka puts beside it
// (brokers from it on, controllers from it+10 on) are free now, and so many from
// it+20 on for other listeners. It looks below the range that systems give to outgoing connections: a node that calls another one
// before that listens would be given the very port it calls, now and then, and
// talk to itself.
func FreePorts(nodes, further int) (int, error) {
	for range 200 {
		port := 15000 + rand.IntN(15000)
		free := true
		var all []int
		for i := range nodes {
			all = append(all, port+i, port+10+i)
		}
		for i := range further {
			all = append(all, port+20+i)
		}
		for _, p := range all {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				free = false
				continue
			}
			l.Close()
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free ports for %d brokers", nodes)
}

// FreePort finds a port on loopback that is free now.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// ModuleRoot returns the folder of go.mod above the working directory, which for
// a test is its package's folder.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = parent
	}
}

// FindShared returns the path of a file in the shared folder beside the module;
// ok is false where it is not there.
func FindShared(t testing.TB, name string) (path string, ok bool) {
	t.Helper()
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(filepath.Dir(root), "shared", filepath.FromSlash(name))
	_, err = os.Stat(path)
	return path, err == nil
}

// Shared is FindShared, and skips the test where the file is not there.
func Shared(t testing.TB, name string) string {
	t.Helper()
	path, ok := FindShared(t, name)
	if !ok {
		t.Skipf("SKIPPED: ../shared/%s is not here", name)
	}
	return path
}
