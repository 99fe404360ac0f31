package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Every fault of a command line is told at once, with the name of its flag.
func TestFaultsComeTogether(t *testing.T) {
	f := ServiceFlags{
		Flags: Flags{
			Brokers: []string{"nonsense"}, Prefix: "a b", TLSCA: "/does/not/exist", TLSCert: "cert.pem",
			SASL: "scram-sha-512",
		},
		Group: "a bprovstream-signer", Deployment: "has blank", Instance: "i", CommitInterval: "soon", SessionTimeout: "1ms", Compression: "tar", Transactions: "perhaps",
	}
	_, err := f.Config("ingest")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, flag := range []string{
		"--brokers", "--prefix", "--tls-ca", "--tls-cert", "--sasl-user", "--sasl-password-file", "--deployment", "--group", "--commit-interval", "--session-timeout", "--compression", "--transactions",
	} {
		if !strings.Contains(err.Error(), flag+":") && !strings.Contains(err.Error(), flag+" and") {
			t.Errorf("%s is not named in:\n%v", flag, err)
		}
	}
}

func TestFlagsBecomeAConfig(t *testing.T) {
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range []string{"", "plain", "scram-sha-256", "SCRAM-SHA-512"} {
		f := ServiceFlags{
			Flags:      Flags{Brokers: []string{"127.0.0.1:9092"}, Prefix: "staging.", SASL: mechanism, TLS: true},
			Deployment: "provstream", Instance: "a", CommitInterval: "100ms", SessionTimeout: "15s", Transactions: "off",
		}
		if mechanism != "" {
			f.SASLUser, f.SASLPasswordFile = "user", password
		}
		c, err := f.Config("ingest")
		if err != nil {
			t.Fatalf("%q: %v", mechanism, err)
		}
		c = c.WithDefaults()
		if c.CommitInterval != 100*time.Millisecond || !c.NoTransactions || c.Group != "staging.provstream-ingest" || c.Topic("prov.steps") != "staging.prov.steps" {
			t.Errorf("%+v", c)
		}
		if cl, err := c.Client(); err != nil {
			t.Errorf("%q: %v", mechanism, err)
		} else {
			cl.Close()
		}
	}
	token := Flags{Brokers: []string{"127.0.0.1:9092"}, SASL: "oauthbearer", SASLTokenFile: password}
	if err := token.Check(); err != nil {
		t.Error(err)
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{"1024": 1024, "64KiB": 64 << 10, "1MiB": 1 << 20} {
		var f Faults
		if got := f.Size("--size", s, 1, 1<<30); got != want || f.Err() != nil {
			t.Errorf("%s: %d, %v", s, got, f.Err())
		}
	}
	for _, s := range []string{"", "x", "1MB", "-1", "3GiB", "99999999999999999999"} {
		var f Faults
		f.Size("--size", s, 1, 1<<30)
		if f.Err() == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestHookTopicsAreTheDeploymentsOwn(t *testing.T) {
	for topic, want := range map[string]bool{
		"acs.hooks.user-message": true, "acs.decisions": true, "acs.hooks.": false, "acs.hooksuser": false, "prov.steps": false,
		"staging.acs.hooks.user-message": false, "acs.decisions.old": false,
	} {
		if got := IsHookTopic("", topic); got != want {
			t.Errorf("without prefix %s: %v", topic, got)
		}
	}
	if !IsHookTopic("staging.", "staging.acs.hooks.x") || IsHookTopic("staging.", "acs.hooks.x") || IsHookTopic("staging.", "stagingXacs.hooks.x") {
		t.Error("prefix")
	}
}
