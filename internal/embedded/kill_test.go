package embedded

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMain is also the broker process of TestKillLoop.
func TestMain(m *testing.M) {
	if dir := os.Getenv("EMBEDDED_TEST_DIR"); dir != "" {
		b, err := Start(context.Background(), Config{DataDir: dir, Listen: os.Getenv("EMBEDDED_TEST_LISTEN"), Partitions: 2})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println("up", b.Addr, b.Repaired)
		select {}
	}
	os.Exit(m.Run())
}

// TestKillLoop kills a broker process again and again while producers write to it
// and transactional loops copy what they write. In the end every record that was
// acknowledged is in the input, and in the output exactly once.
//
// EMBEDDED_KILLS sets the number of kills.
func TestKillLoop(t *testing.T) {
	kills := 4
	if testing.Short() {
		kills = 2
	}
	if n, err := strconv.Atoi(os.Getenv("EMBEDDED_KILLS")); err == nil {
		kills = n
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir, addr := t.TempDir(), freeAddr(t)
	broker := process(t, dir, addr)

	ctx, stop := context.WithCancel(t.Context())
	var acknowledged atomic.Int64
	done := make(chan error, 3)
	go func() { done <- write(ctx, addr, &acknowledged) }()
	for i := range 2 {
		go func() { done <- relay(ctx, addr, i) }()
	}
	for k := range kills {
		time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond)
		if err := broker.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = broker.Wait()
		t.Logf("kill %d: %d acknowledged", k, acknowledged.Load())
		broker = process(t, dir, addr)
	}
	time.Sleep(300 * time.Millisecond)
	stop()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	// Drain with one more loop, then compare.
	n := len(committed(t, addr, "acs.decisions", 1))
	if n < int(acknowledged.Load()) {
		t.Errorf("%d records were acknowledged, %d are there", acknowledged.Load(), n)
	}
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	go func() { done <- relay(ctx, addr, 0) }()
	var out []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if out = committed(t, addr, "prov.runs", 2); len(out) >= n {
			break
		}
	}
	stop()
	<-done
	in := committed(t, addr, "acs.decisions", 1)
	out = committed(t, addr, "prov.runs", 2)
	slices.Sort(in)
	slices.Sort(out)
	if !slices.Equal(in, out) {
		t.Errorf("%d records in, %d out, %d of them distinct", len(in), len(out), len(slices.Compact(slices.Clone(out))))
	}
	t.Logf("%d kills, %d records", kills, len(in))
	_ = broker.Process.Signal(syscall.SIGKILL)
}

// process starts a broker process and waits until it is up.
func process(t *testing.T, dir, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EMBEDDED_TEST_DIR="+dir, "EMBEDDED_TEST_LISTEN="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "up ") {
		t.Fatalf("the broker did not start: %s%v", line, err)
	}
	t.Log(strings.TrimSpace(line))
	return cmd
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// write produces numbered records until the context ends.
func write(ctx context.Context, addr string, acknowledged *atomic.Int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("acs.decisions"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryTimeout(2*time.Second), kgo.RecordDeliveryTimeout(3*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := 0; ctx.Err() == nil; i++ {
		// A record without an answer may be there or not; its number is not
		// used again, so that both are right.
		if cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr() == nil {
			acknowledged.Add(1)
		}
	}
	return nil
}

// relay copies acs.decisions to both partitions of prov.runs in turn, exactly
// once, starting anew after any error.
func relay(ctx context.Context, addr string, instance int) error {
	for ctx.Err() == nil {
		if err := relayOnce(ctx, addr, instance); err != nil && ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func relayOnce(ctx context.Context, addr string, instance int) error {
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(addr), kgo.TransactionalID(fmt.Sprint("relay-", instance)),
		kgo.ConsumerGroup("relay"), kgo.ConsumeTopics("acs.decisions"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(20*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.InstanceID(fmt.Sprint(instance)),
		kgo.RetryTimeout(2*time.Second), kgo.TransactionTimeout(5*time.Second))
	if err != nil {
		return err
	}
	defer s.Close()
	for ctx.Err() == nil {
		fetches := s.PollRecords(ctx, 50)
		if err := fetches.Err0(); err != nil {
			return err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			s.Produce(ctx, &kgo.Record{Topic: "prov.runs", Partition: int32(r.Offset % 2), Value: r.Value}, nil)
		})
		end, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err := s.End(end, kgo.TryCommit)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// committed reads the partitions of a topic to their last stable offsets.
func committed(t *testing.T, addr, topic string, partitions int32) []string {
	t.Helper()
	var out []string
	for p := range partitions {
		out = append(out, readPartition(t, addr, topic, p)...)
	}
	return out
}
