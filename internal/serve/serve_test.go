package serve_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"provstream/internal/kafka"
	"provstream/internal/serve"
)

func newService(t *testing.T, f serve.Flags) *serve.Service {
	t.Helper()
	f.LogFormat, f.LogLevel = "text", "error"
	var faults kafka.Faults
	f.Check(&faults)
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	return serve.New("test", f, io.Discard)
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// Not ready is told with its reason; ready once the service works; and the
// metrics are those of the registry.
func TestListener(t *testing.T) {
	s := newService(t, serve.Flags{})
	h := s.Handler()
	if code, body := get(t, h, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	if code, body := get(t, h, "/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "starting") {
		t.Errorf("/ready at the start: %d %s", code, body)
	}
	s.Health.Works()
	s.Health.Note("clock", "held by acs.hooks.turn-end/3")
	if code, body := get(t, h, "/ready"); code != http.StatusOK {
		t.Errorf("/ready: %d %s", code, body)
	}
	if _, body := get(t, h, "/status"); !strings.Contains(body, "state         ready") || !strings.Contains(body, "held by acs.hooks.turn-end/3") {
		t.Errorf("/status: %s", body)
	}
	if code, body := get(t, h, "/metrics"); code != http.StatusOK || !strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: %d", code)
	}
}

// serveOn runs a service on a free port until the test ends.
func serveOn(t *testing.T, f serve.Flags) (address string, s *serve.Service) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.ListenMetrics = l.Addr().String()
	l.Close()
	s = newService(t, f)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		done <- s.Run(ctx, func(ctx context.Context) error { close(started); <-ctx.Done(); return nil })
	}()
	<-started
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f.ListenMetrics, s
}

func TestProbe(t *testing.T) {
	address, s := serveOn(t, serve.Flags{})
	_, port, _ := net.SplitHostPort(address)
	f := serve.Flags{ListenMetrics: "0.0.0.0:" + port} // as a container listens
	if err := f.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "starting") {
		t.Errorf("probe of a service that starts: %v", err)
	}
	s.Health.Works()
	if err := f.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if err := (serve.Flags{ListenMetrics: "127.0.0.1:1"}).Ready(t.Context()); err == nil {
		t.Error("a probe of nobody holds")
	}
}

// TLS and a password by a web configuration file of exporter-toolkit.
func TestWebConfig(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	const hash = "$2a$04$1UZcsxGqHu2ZKwHu67F6oO/me.n3xRRSEh5HIM9D7XPVPUEVrZERm" // bcrypt of "watch"
	config := filepath.Join(dir, "web.yml")
	text := fmt.Sprintf("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\nbasic_auth_users: {prometheus: %q}\n", hash)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address, _ := serveOn(t, serve.Flags{WebConfig: config})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 5 * time.Second}
	for _, c := range []struct {
		password string
		want     int
	}{{"watch", http.StatusOK}, {"wrong", http.StatusUnauthorized}, {"", http.StatusUnauthorized}} {
		req, err := http.NewRequest(http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.password != "" {
			req.SetBasicAuth("prometheus", c.password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("password %q: %d, want %d", c.password, resp.StatusCode, c.want)
		}
	}
	if resp, err := http.Get("http://" + address + "/metrics"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("it answers without TLS")
		}
	}
}

// certificate writes a self-signed one for 127.0.0.1.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for name, b := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return pool
}

// All faults come together, each with its flag.
func TestFaultsComeTogether(t *testing.T) {
	var faults kafka.Faults
	serve.Flags{LogFormat: "xml", LogLevel: "loud", ListenMetrics: "nowhere", WebConfig: "absent.yml"}.Check(&faults)
	err := faults.Err()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, flag := range []string{"--log-format", "--log-level", "--listen-metrics", "--web-config"} {
		if !strings.Contains(err.Error(), flag+":") {
			t.Errorf("%s is not named in: %v", flag, err)
		}
	}
}

// What is printed and logged is what was understood, as JSON where that is asked.
func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := serve.Flags{LogFormat: "json", LogLevel: "warn"}.Logger(&b)
	log.Info("not this")
	log.Warn("this", slog.Int("n", 1))
	if got := b.String(); strings.Contains(got, "not this") || !strings.HasPrefix(got, "{") || !strings.Contains(got, `"msg":"this"`) {
		t.Errorf("logged %q", got)
	}
}
