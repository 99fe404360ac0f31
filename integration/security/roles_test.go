package security

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/integration/processes"
	"provstream/internal/keys"
	"provstream/internal/topics"
	"provstream/internal/topology"
	"provstream/verify"
)

// people is a deployment at work, on which the roles that are no service do what
// they are for, each with the password of its own.
type people struct {
	*secured
	bin, keys, jwks, fleet string
	filters                int // of redrive that were used
}

const peoplesPrefix = "people."

func (s *secured) people(t *testing.T) *people {
	t.Helper()
	p := &people{secured: s, bin: t.TempDir(), keys: filepath.Join(s.dir, "keys"), jwks: filepath.Join(s.dir, "pinned.json"), fleet: filepath.Join(s.dir, "fleet.jsonl")}
	if err := processes.Build(t.Context(), p.bin); err != nil {
		t.Fatal(err)
	}
	for _, use := range []verify.Use{verify.UseLog, verify.UseDAG} {
		if _, err := keys.Create(p.keys, use, ""); err != nil {
			t.Fatal(err)
		}
	}
	ring, err := keys.Load(p.keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.jwks, verify.JWKS(ring.Public()), 0o644); err != nil {
		t.Fatal(err)
	}
	s.fresh(t, peoplesPrefix)
	r := s.services(t, peoplesPrefix, ring, users...)
	t.Cleanup(r.stop)
	for _, role := range topics.Roles {
		if err := topology.GrantACLs(t.Context(), s.admin, "User:"+role, topics.ACLs(role, peoplesPrefix)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(filepath.Join(p.bin, "provctl"), "generate", "--seed", "4", "--sessions", "3", "-o", p.fleet).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.send(t, peoplesPrefix, 1)
	p.spoil(t)
	wait(t, "signed DAGs", func() string { return r.logs["signer"].String() }, func() bool { return s.signed(t, peoplesPrefix) >= 2 })
	return p
}

// spoil sends a record that is no JSON to a hook topic and to the decisions: dead
// letters that refer to their source.
func (p *people) spoil(t *testing.T) {
	t.Helper()
	cl, err := p.flags.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, topic := range []string{topics.Hook("steps/userMessage"), topics.Decisions} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: peoplesPrefix + topic, Value: []byte("{")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// provctl runs a command as a role. It returns the exit status and what was said.
func (p *people) provctl(t *testing.T, role string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := p.plainFlags(t, role)
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "provctl"), args...)
	cmd.Env = append(os.Environ(), "PROVSTREAM_BROKERS="+f.Brokers[0], "PROVSTREAM_PREFIX="+peoplesPrefix,
		"PROVSTREAM_SASL=plain", "PROVSTREAM_SASL_USER="+role, "PROVSTREAM_SASL_PASSWORD_FILE="+f.SASLPasswordFile)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Errorf("provctl %s as %s does not end: %s", strings.Join(args, " "), role, out.String())
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// jobs are what each role does with provctl. A SIEM has software of its own: see
// consume.
func (p *people) jobs(role string) [][]string {
	p.filters++
	graces := []string{"--complete-grace=10ms", "--grace=20ms", "--seal-grace=100ms", "--dead-letter-value=reference"}
	switch role {
	case "agent":
		return [][]string{{"replay", p.fleet, "--copies=1", "--shift-to-now"}}
	case "reader":
		return [][]string{{"verify", "--topic", "--log", "--jwks", p.jwks}, {"show"}, {"keys", "list", "--topic"}}
	case "auditor":
		return [][]string{
			append([]string{"reconcile", "--jwks", p.jwks}, graces...), {"coverage", "--values", "--jwks", p.jwks},
			{"verify", "--topic", "--log", "--jwks", p.jwks}, {"state", "inspect"},
		}
	case "operator":
		return [][]string{
			{"topics", "create", "--hooks", "--partitions=2", "--replication=1"}, {"topics", "check"}, {"topics", "list"},
			{"keys", "publish", "--dir", p.keys}, {"keys", "list", "--topic"}, {"keys", "new", "--dir", p.keys, "--use=dag", "--rotate", "--publish"},
			// Another filter each time, so that there is something to send.
			{"redrive", "--kind=not_json", fmt.Sprintf("--max-attempts=%d", 1000+p.filters)},
			{"state", "inspect"}, {"doctor", "--as=operator"},
		}
	case "canary":
		return [][]string{{"canary", "--count=1", "--timeout=20s", "--jwks", p.jwks}}
	}
	return nil
}

// consume is what a SIEM does: a group that reads everything that it may read.
func (p *people) consume(t *testing.T, role, group string) error {
	t.Helper()
	var names []string
	for _, n := range []string{topics.Turns, topics.Sessions, topics.DAGs, topics.Checkpoints, topics.Keys} {
		names = append(names, peoplesPrefix+n)
	}
	f := p.plainFlags(t, role)
	cl, err := f.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(names...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequestRetries(2))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := make(map[string]bool)
	for len(seen) < len(names) {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("%s: %w", e.Topic, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[r.Topic] = true })
	}
	return cl.CommitUncommittedOffsets(ctx)
}

// work does all jobs of a role and returns the complaints.
func (p *people) work(t *testing.T, role string) (complaints []string) {
	t.Helper()
	for _, job := range p.jobs(role) {
		if status, said := p.provctl(t, role, job...); status != 0 {
			complaints = append(complaints, fmt.Sprintf("provctl %s: status %d: %s", strings.Join(job, " "), status, said))
		}
	}
	if role == "reader" {
		p.filters++
		if err := p.consume(t, role, fmt.Sprintf("%ssiem-%d", peoplesPrefix, p.filters)); err != nil {
			complaints = append(complaints, "a consumer: "+err.Error()+" (its own words; topics acls)")
		}
	}
	return complaints
}

// Whoever is no service does what it is for with exactly the rights of its role;
// with any one of them taken away something fails, and what fails says that a
// right is missing and where the rights stand.
func TestRolesOfPeople(t *testing.T) {
	s := start(t)
	p := s.people(t)
	if out, err := exec.Command(filepath.Join(p.bin, "provctl"), "keys", "publish", "--dir", p.keys, "--brokers", s.flags.Brokers[0], "--prefix", peoplesPrefix).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, role := range []string{"agent", "reader", "auditor", "operator", "canary"} {
		list := topics.ACLs(role, peoplesPrefix)
		t.Run(role, func(t *testing.T) {
			for _, c := range p.work(t, role) {
				t.Errorf("with all rights: %s", c)
			}
			for _, a := range list {
				t.Run(fmt.Sprintf("without %s %s %s", a.Operation, a.Resource, a.Name), func(t *testing.T) { p.without(t, role, a) })
			}
		})
	}
}

func (p *people) without(t *testing.T, role string, a topics.ACL) {
	principal := "User:" + role
	if err := topology.RevokeACL(t.Context(), p.admin, principal, a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := topology.GrantACLs(ctx, p.admin, principal, []topics.ACL{a}); err != nil {
			t.Error(err)
		}
		granted(ctx, t, p.admin, principal, a, true)
	})
	granted(t.Context(), t, p.admin, principal, a, false)
	complaints := p.work(t, role)
	if len(complaints) == 0 {
		t.Errorf("nothing fails: the right is not needed")
	}
	for _, c := range complaints {
		text := strings.ToLower(c)
		if !strings.Contains(text, "authoriz") && !strings.Contains(text, "no right to") || !strings.Contains(text, "topics acls") {
			t.Errorf("does not tell that a right is missing, or where the rights stand: %s", c)
		}
	}
}

// granted waits until the broker knows of a right or of its end.
func granted(ctx context.Context, t *testing.T, adm *kadm.Client, principal string, a topics.ACL, want bool) {
	t.Helper()
	for range 100 {
		missing, err := topology.MissingACLs(ctx, adm, principal, []topics.ACL{a})
		if err != nil {
			t.Fatal(err)
		}
		if (len(missing) == 0) == want {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("the broker does not take over %s of %s", a.Operation, a.Name)
}
