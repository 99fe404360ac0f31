// Package security runs the services against an Apache Kafka that demands
// authentication and has ACLs: each with exactly the rights of topics.ACLs, then
// with each of them taken away, and over every way to authenticate.
//
// It starts a broker of its own with scripts/kafka, and skips aloud unless
// KAFKATEST_START is set.
package security

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"provstream/internal/aggregator"
	"provstream/internal/generate"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/load"
	"provstream/internal/pipeline"
	"provstream/internal/signer"
	"provstream/internal/topics"
	"provstream/internal/topology"
	"provstream/internal/window"
	"provstream/verify"
)

// secured is a broker with one listener a way to authenticate. Its plaintext
// listener is the administrator's.
type secured struct {
	kafka *kafkatest.ApacheKafka
	admin *kadm.Client
	flags kafka.Flags // of the administrator
	ports map[string]int
	pki   *pki
	dir   string
}

// users are the services' principals.
var users = []string{"ingest", "aggregator", "signer"}

func start(t *testing.T) *secured {
	t.Helper()
	if os.Getenv("KAFKATEST_START") == "" {
		t.Skip("SKIPPED: KAFKATEST_START=1 starts a broker with ACLs (needs Java and Maven)")
	}
	s := &secured{ports: map[string]int{}, dir: t.TempDir()}
	s.pki = newPKI(t, s.dir)
	ways := []string{"PLAINTEXT", "SASLPLAIN", "SASLSSL", "MTLS"}
	var listeners, advertised []string
	for _, w := range append(ways, "CONTROLLER") {
		port, err := kafkatest.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		s.ports[w] = port
		listeners = append(listeners, fmt.Sprintf("%s://127.0.0.1:%d", w, port))
		if w != "CONTROLLER" {
			advertised = append(advertised, fmt.Sprintf("%s://127.0.0.1:%d", w, port))
		}
	}
	plain := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for _, u := range topics.Roles {
		plain += fmt.Sprintf(` user_%s="%s-secret"`, u, u)
	}
	plain += ";"
	settings := []string{
		"controller.quorum.voters=1@127.0.0.1:" + strconv.Itoa(s.ports["CONTROLLER"]),
		"listeners=" + strings.Join(listeners, ","), "advertised.listeners=" + strings.Join(advertised, ","),
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASLPLAIN:SASL_PLAINTEXT,SASLSSL:SASL_SSL,MTLS:SSL",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"listener.name.saslplain.plain.sasl.jaas.config=" + plain, "listener.name.saslssl.plain.sasl.jaas.config=" + plain,
		"listener.name.saslssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.saslssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.saslssl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required " +
			`unsecuredLoginStringClaim_sub="broker";`,
		"listener.name.saslplain.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.saslplain.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.saslplain.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required " +
			`unsecuredLoginStringClaim_sub="broker";`,
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + filepath.Join(s.dir, "broker.pem"),
		"ssl.truststore.type=PEM", "ssl.truststore.location=" + filepath.Join(s.dir, "ca.pem"),
		"listener.name.mtls.ssl.client.auth=required", "ssl.principal.mapping.rules=RULE:^CN=(.*?)$/$1/,DEFAULT",
	}
	// scripts/kafka looks for the first broker port that it knows of.
	var err error
	if s.kafka, err = kafkatest.StartApacheKafkaAt(s.ports["PLAINTEXT"], settings...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.kafka.Wipe() })
	s.flags = kafka.Flags{Brokers: []string{s.address("PLAINTEXT")}}
	cl, err := s.flags.Client(topology.Fresh())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	s.admin = kadm.NewClient(cl)
	return s
}

func (s *secured) address(way string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports[way]))
}

// file writes a secret.
func (s *secured) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// plainFlags are those of a user by SASL PLAIN without TLS.
func (s *secured) plainFlags(t *testing.T, user string) kafka.Flags {
	return kafka.Flags{Brokers: []string{s.address("SASLPLAIN")}, SASL: "plain", SASLUser: user, SASLPasswordFile: s.file(t, user+".password", user+"-secret\n")}
}

// buffer takes what a service logs.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// services are the three, each as its own user.
type services struct {
	logs   map[string]*buffer
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (s *secured) services(t *testing.T, prefix string, ring *keys.Ring, names ...string) *services {
	ctx, cancel := context.WithCancel(context.Background())
	r := &services{logs: map[string]*buffer{}, cancel: cancel}
	w := window.DefaultConfig()
	w.CompleteGrace, w.Grace, w.SealGrace = 10*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond
	for _, name := range names {
		log := new(buffer)
		r.logs[name] = log
		flags := s.plainFlags(t, name)
		flags.Prefix = prefix
		cfg := kafka.Config{Flags: flags, LeaveOnStop: true, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))}
		r.wg.Go(func() {
			var err error
			switch name {
			case pipeline.Ingest:
				err = ingest.Run(ctx, ingest.Config{Config: cfg, DeadLetterReference: true})
			case pipeline.Aggregator:
				err = aggregator.Run(ctx, aggregator.Config{Config: cfg, Window: w})
			case pipeline.Signer:
				err = signer.Run(ctx, signer.Config{Config: cfg, Ring: ring})
			}
			if err != nil {
				fmt.Fprintln(log, "ended:", err)
			}
		})
	}
	return r
}

func (r *services) stop() {
	r.cancel()
	r.wg.Wait()
}

func newRing(t *testing.T) *keys.Ring {
	t.Helper()
	log, err1 := keys.Generate(verify.UseLog, "")
	dag, err2 := keys.Generate(verify.UseDAG, "")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ring, err := keys.NewRing(log, dag)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// fresh makes the topics of a prefix and grants every service its rights.
func (s *secured) fresh(t *testing.T, prefix string) {
	t.Helper()
	_, err := topology.Create(t.Context(), s.admin, topology.Spec{Prefix: prefix, Partitions: 2, Replication: 1, Hooks: true, HookPartitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range users {
		if err := topology.GrantACLs(t.Context(), s.admin, "User:"+u, topics.ACLs(u, prefix)); err != nil {
			t.Fatal(err)
		}
	}
}

// send sends a small fleet as the administrator and tells how many DAGs to expect.
func (s *secured) send(t *testing.T, prefix string, seed uint64) {
	t.Helper()
	g, err := generate.New(generate.Config{Seed: seed, Sessions: 2, StartMs: time.Now().Add(-time.Minute).UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	flags := s.flags
	flags.Prefix = prefix
	sender, err := load.NewSender(flags, load.Options{CreateTopics: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	for r := range g.All() {
		if err := sender.Send(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if err := sender.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// signed counts the DAGs.
func (s *secured) signed(t *testing.T, prefix string) int64 {
	t.Helper()
	ends, err := s.admin.ListCommittedOffsets(t.Context(), prefix+topics.DAGs)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

func wait(t *testing.T, what string, logs func() string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Errorf("never: %s\n%s", what, logs())
}

// With exactly the rights of the table each service does its work, and with any
// one of them taken away it says which operation on what it was refused.
func TestRights(t *testing.T) {
	s := start(t)
	ring := newRing(t)
	t.Run("exactly these", func(t *testing.T) {
		const prefix = "all."
		s.fresh(t, prefix)
		r := s.services(t, prefix, ring, users...)
		defer r.stop()
		s.send(t, prefix, 1)
		wait(t, "signed DAGs", func() string {
			return r.logs["ingest"].String() + r.logs["aggregator"].String() + r.logs["signer"].String()
		},
			func() bool { return s.signed(t, prefix) >= 2 })
		for name, log := range r.logs {
			if text := strings.ToLower(log.String()); strings.Contains(text, "authoriz") {
				t.Errorf("%s complains: %s", name, text)
			}
		}
	})
	// Taken away one at a time: the broker's cache of ACLs follows within moments.
	for i, service := range users {
		for j, a := range topics.ACLs(service, "") {
			t.Run(fmt.Sprintf("%s without %s %s", service, a.Operation, a.Name), func(t *testing.T) {
				prefix := fmt.Sprintf("w%d-%d.", i, j)
				a := topics.ACLs(service, prefix)[j]
				s.fresh(t, prefix)
				if err := topology.RevokeACL(t.Context(), s.admin, "User:"+service, a); err != nil {
					t.Fatal(err)
				}
				if missing, err := topology.MissingACLs(t.Context(), s.admin, "User:"+service, topics.ACLs(service, prefix)); err != nil || len(missing) != 1 {
					t.Fatalf("missing: %v, %v", missing, err)
				}
				r := s.services(t, prefix, ring, users[:i+1]...) // those after it get nothing
				defer r.stop()
				s.send(t, prefix, 1)
				log := r.logs[service]
				wait(t, service+" says what it was refused", log.String, func() bool {
					text := strings.ToLower(log.String())
					return strings.Contains(text, "authoriz") && strings.Contains(text, "topics acls")
				})
			})
		}
	}
}

// Every way to authenticate, good and bad.
func TestAuthentication(t *testing.T) {
	s := start(t)
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		if _, err := s.admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "ingest", Mechanism: m, Iterations: 4096, Password: "scram-secret"}}); err != nil {
			t.Fatal(err)
		}
	}
	s.fresh(t, "")
	scram, wrong := s.file(t, "scram", "scram-secret"), s.file(t, "wrong", "wrong")
	ca := filepath.Join(s.dir, "ca.pem")
	token := s.file(t, "token", unsecuredToken("ingest", time.Hour))
	old := s.file(t, "old", unsecuredToken("ingest", -time.Hour))
	tls := kafka.Flags{Brokers: []string{s.address("SASLSSL")}, TLSCA: ca}
	with := func(f kafka.Flags, change func(*kafka.Flags)) kafka.Flags { change(&f); return f }
	for _, c := range []struct {
		name  string
		flags kafka.Flags
		fails string // part of the error; "" holds
	}{
		{"plain", s.plainFlags(t, "ingest"), ""},
		{"plain, wrong password", with(s.plainFlags(t, "ingest"), func(f *kafka.Flags) { f.SASLPasswordFile = wrong }), "authentication"},
		{"plain over TLS", with(tls, func(f *kafka.Flags) {
			f.SASL, f.SASLUser, f.SASLPasswordFile = "plain", "ingest", s.file(t, "p", "ingest-secret")
		}), ""},
		{"scram-sha-256", with(tls, func(f *kafka.Flags) { f.SASL, f.SASLUser, f.SASLPasswordFile = "scram-sha-256", "ingest", scram }), ""},
		{"scram-sha-512", with(tls, func(f *kafka.Flags) { f.SASL, f.SASLUser, f.SASLPasswordFile = "scram-sha-512", "ingest", scram }), ""},
		{"scram, wrong password", with(tls, func(f *kafka.Flags) { f.SASL, f.SASLUser, f.SASLPasswordFile = "scram-sha-512", "ingest", wrong }), "authentication"},
		{"oauthbearer", with(tls, func(f *kafka.Flags) { f.SASL, f.SASLTokenFile = "oauthbearer", token }), ""},
		{"oauthbearer, expired", with(tls, func(f *kafka.Flags) { f.SASL, f.SASLTokenFile = "oauthbearer", old }), "auth"},
		{"TLS, unknown authority", with(tls, func(f *kafka.Flags) {
			f.TLSCA, f.TLS, f.SASL, f.SASLUser, f.SASLPasswordFile = "", true, "plain", "ingest", scram
		}), "certificate"},
		{"TLS, another name", with(tls, func(f *kafka.Flags) {
			f.TLSServerName, f.SASL, f.SASLUser, f.SASLPasswordFile = "elsewhere", "plain", "ingest", scram
		}), "certificate"},
		{"mTLS", kafka.Flags{Brokers: []string{s.address("MTLS")}, TLSCA: ca, TLSCert: filepath.Join(s.dir, "ingest.crt"), TLSKey: filepath.Join(s.dir, "ingest.key")}, ""},
		{"mTLS without a certificate", kafka.Flags{Brokers: []string{s.address("MTLS")}, TLSCA: ca}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			cluster, err := kafka.Open(ctx, c.flags)
			if err == nil {
				cluster.Close()
			}
			switch {
			case c.name == "mTLS without a certificate":
				if err == nil {
					t.Error("it holds")
				}
			case c.fails == "" && err != nil:
				t.Error(err)
			case c.fails != "" && (err == nil || !strings.Contains(strings.ToLower(err.Error()), c.fails)):
				t.Errorf("error %v, want something about %s", err, c.fails)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the error tells the secret: %v", err)
			}
		})
	}
}

// unsecuredToken is a JWT without signature, which the broker's default
// validator takes.
func unsecuredToken(subject string, valid time.Duration) string {
	now := time.Now()
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none"}`)) + "." + enc(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`, subject, now.Add(-2*time.Hour).Unix(), now.Add(valid).Unix())) + "."
}
