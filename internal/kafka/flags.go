package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Flags name a cluster. They are the same in every binary; embed the struct in
// a kong command. Values stay text until they are used, so that every fault is
// told at once (see [Flags.Check]); secrets are file paths, read again for
// every connection, so that a rotated secret needs no restart.
type Flags struct {
	Brokers []string `help:"Kafka bootstrap addresses, host:port." default:"127.0.0.1:9092" env:"PROVSTREAM_BROKERS"`
	Prefix  string   `help:"Text before every topic name, acs.* too; it separates deployments on one cluster." env:"PROVSTREAM_PREFIX"`

	TLS           bool   `name:"tls" help:"Speak TLS to the brokers; implied by the other --tls flags." env:"PROVSTREAM_TLS"`
	TLSCA         string `name:"tls-ca" help:"PEM file of the authorities that sign the brokers' certificates; the system's when empty." placeholder:"FILE" env:"PROVSTREAM_TLS_CA"`
	TLSCert       string `name:"tls-cert" help:"PEM file of the client certificate (mTLS)." placeholder:"FILE" env:"PROVSTREAM_TLS_CERT"`
	TLSKey        string `name:"tls-key" help:"PEM file of the client certificate's key." placeholder:"FILE" env:"PROVSTREAM_TLS_KEY"`
	TLSServerName string `name:"tls-server-name" help:"Name that the brokers' certificates must bear, if not the address." env:"PROVSTREAM_TLS_SERVER_NAME"`

	SASL             string `name:"sasl" help:"plain, scram-sha-256, scram-sha-512 or oauthbearer; none when empty." placeholder:"MECHANISM" env:"PROVSTREAM_SASL"`
	SASLUser         string `name:"sasl-user" help:"User of plain and scram." env:"PROVSTREAM_SASL_USER"`
	SASLPasswordFile string `name:"sasl-password-file" help:"File with the password of plain and scram." placeholder:"FILE" env:"PROVSTREAM_SASL_PASSWORD_FILE"`
	SASLTokenFile    string `name:"sasl-token-file" help:"File with the token of oauthbearer." placeholder:"FILE" env:"PROVSTREAM_SASL_TOKEN_FILE"`

	// Extra are further client options of a program that embeds the services:
	// a dialer into a virtual network, hooks.
	Extra []kgo.Opt `kong:"-" json:"-"`
}

// Check reports every fault of the flags, each with the name of its flag.
func (f Flags) Check() error {
	_, err := f.options()
	return err
}

// Client connects to the cluster. It dials lazily: an unreachable broker shows
// with the first request.
func (f Flags) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	base, err := f.options()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return cl, nil
}

// Topic is the name of a topic of the table in this deployment.
func (f Flags) Topic(base string) string { return f.Prefix + base }

// options are the client options that follow from the flags.
func (f Flags) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SoftwareNameAndVersion("provstream", "1"), kgo.ClientID("provstream"),
		// A batch that is answered with a leader's move or CONCURRENT_TRANSACTIONS is
		// sent again after the next look at the metadata, which by default is up to
		// 5 s away. The latter is no rarity: a transaction that begins while
		// the markers of the one before are being written is told so (KIP-890).
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	var faults []error
	if len(f.Brokers) == 0 {
		faults = append(faults, errors.New("--brokers: name at least one host:port"))
	}
	for _, b := range f.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			faults = append(faults, fmt.Errorf("--brokers: %q is no host:port", b))
		}
	}
	opts = append(opts, kgo.SeedBrokers(f.Brokers...))
	if err := validPrefix(f.Prefix); err != nil {
		faults = append(faults, err)
	}
	tlsOpt, err := f.tls()
	faults = append(faults, err)
	opts = append(opts, tlsOpt...)
	saslOpt, err := f.sasl()
	faults = append(faults, err)
	opts = append(opts, saslOpt...)
	opts = append(opts, f.Extra...)
	return opts, errors.Join(faults...)
}

// validPrefix holds the prefix to the characters of topic names.
func validPrefix(prefix string) error {
	for _, c := range prefix {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return fmt.Errorf("--prefix: %q stands in no topic name; use letters, digits, '.', '_' and '-'", c)
		}
	}
	if len(prefix) > 100 {
		return errors.New("--prefix: longer than 100 characters")
	}
	return nil
}

func (f Flags) tls() ([]kgo.Opt, error) {
	if !f.TLS && f.TLSCA == "" && f.TLSCert == "" && f.TLSKey == "" && f.TLSServerName == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.TLSServerName}
	var faults []error
	if f.TLSCA != "" {
		pem, err := os.ReadFile(f.TLSCA)
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("--tls-ca: %w", err))
		default:
			c.RootCAs = x509.NewCertPool()
			if !c.RootCAs.AppendCertsFromPEM(pem) {
				faults = append(faults, fmt.Errorf("--tls-ca: %s holds no PEM certificate", f.TLSCA))
			}
		}
	}
	switch {
	case (f.TLSCert == "") != (f.TLSKey == ""):
		faults = append(faults, errors.New("--tls-cert and --tls-key: give both or none"))
	case f.TLSCert != "":
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
			if err != nil {
				return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
			}
			return &cert, nil
		}
		if _, err := load(); err != nil {
			faults = append(faults, err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return []kgo.Opt{kgo.DialTLSConfig(c)}, errors.Join(faults...)
}

func (f Flags) sasl() ([]kgo.Opt, error) {
	var faults []error
	var m sasl.Mechanism
	password := func() (string, error) { return secret("--sasl-password-file", f.SASLPasswordFile) }
	mechanism := strings.ToLower(f.SASL)
	switch mechanism {
	case "":
		if f.SASLUser != "" || f.SASLPasswordFile != "" || f.SASLTokenFile != "" {
			faults = append(faults, errors.New("--sasl: name the mechanism that the other --sasl flags are for"))
		}
		return nil, errors.Join(faults...)
	case "plain", "scram-sha-256", "scram-sha-512":
		if f.SASLUser == "" {
			faults = append(faults, fmt.Errorf("--sasl-user: required by --sasl=%s", mechanism))
		}
		if _, err := password(); err != nil {
			faults = append(faults, err)
		}
	case "oauthbearer":
		if _, err := secret("--sasl-token-file", f.SASLTokenFile); err != nil {
			faults = append(faults, err)
		}
	default:
		faults = append(faults, fmt.Errorf("--sasl: %q is none of plain, scram-sha-256, scram-sha-512, oauthbearer", f.SASL))
	}
	scramAuth := func(context.Context) (scram.Auth, error) {
		p, err := password()
		return scram.Auth{User: f.SASLUser, Pass: p}, err
	}
	switch mechanism {
	case "plain":
		m = plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := password()
			return plain.Auth{User: f.SASLUser, Pass: p}, err
		})
	case "scram-sha-256":
		m = scram.Sha256(scramAuth)
	case "scram-sha-512":
		m = scram.Sha512(scramAuth)
	case "oauthbearer":
		m = oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			t, err := secret("--sasl-token-file", f.SASLTokenFile)
			return oauth.Auth{Token: t}, err
		})
	}
	if m == nil {
		return nil, errors.Join(faults...)
	}
	return []kgo.Opt{kgo.SASL(m)}, errors.Join(faults...)
}

// secret reads a file with one secret; a final line break is not part of it.
func secret(flag, file string) (string, error) {
	if file == "" {
		return "", fmt.Errorf("%s: required", flag)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	s := strings.TrimRight(string(b), "\r\n")
	if s == "" {
		return "", fmt.Errorf("%s: %s is empty", flag, file)
	}
	return s, nil
}
