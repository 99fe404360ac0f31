package deploy_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"provstream/internal/canary"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md anew")

const metricsDoc = "../docs/metrics.md"

// The tables, by the prefix of their metrics; the first that fits takes a metric.
var tables = []struct{ heading, prefix string }{
	{"ingest", "provstream_ingest_"},
	{"aggregator", "provstream_aggregator_"},
	{"signer", "provstream_signer_"},
	{"canary", "provstream_canary_"},
	{"kafka", "provstream_kafka_"},
	{"every service", "provstream_"},
}

// docs/metrics.md lists every metric that the services and the canary register,
// with type and labels, and no other; and what a run of the whole pipeline with
// every fault exports is among them.
func TestMetricsAreDocumented(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 40, faults()...)
	w.drained(t)
	reg := newRecorder()
	pinned, err := w.ring.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	failed, err := canary.Run(t.Context(), canary.Config{Flags: w.flags, Keys: pinned, Tenant: "canary", Timeout: time.Minute, Registerer: reg}, 1)
	if err != nil || failed != 0 {
		t.Fatalf("canary: %d failed, %v", failed, err)
	}
	w.recorders["canary"] = reg
	until(t, "lag is told", func() bool { return series(w.gather(t), "provstream_consumer_lag_seconds") > 0 })

	code := make(map[string]metric)
	for _, r := range w.recorders {
		maps.Copy(code, r.described())
	}
	if *update {
		write(t, code)
	}
	doc := documented(t)
	for _, name := range slices.Sorted(maps.Keys(code)) {
		d, ok := doc[name]
		switch c := code[name]; {
		case !ok:
			t.Errorf("%s does not list %s; run go test ./deploy -run TestMetricsAreDocumented -update", metricsDoc, name)
		case d.kind != c.kind || d.labels != c.labels:
			t.Errorf("%s: %s is a %s with labels [%s]; it says %s [%s]", metricsDoc, name, c.kind, c.labels, d.kind, d.labels)
		case d.help != c.help:
			t.Errorf("%s: %s means %q; it says %q", metricsDoc, name, c.help, d.help)
		}
	}
	for name := range doc {
		if _, ok := code[name]; !ok {
			t.Errorf("%s lists %s, which nothing registers", metricsDoc, name)
		}
	}

	// What really came out.
	exported := make(map[string]bool)
	for _, f := range w.gather(t) {
		exported[f.GetName()] = true
		d := doc[f.GetName()]
		if kind := strings.ToLower(f.GetType().String()); kind != d.kind {
			t.Errorf("%s comes out as a %s, documented is %q", f.GetName(), kind, d.kind)
		}
		for _, m := range f.Metric {
			checkSeries(t, f.GetName(), m, d)
		}
	}
	for name := range code {
		if !exported[name] && !slices.Contains(rare, name) {
			t.Errorf("%s did not come out of a run with every fault", name)
		}
	}
}

// rare have no series unless something is going on.
var rare = []string{
	"provstream_aggregator_clock_holder_seconds", "provstream_aggregator_restore_remaining_records",
	"provstream_aggregator_oldest_open_run_timestamp_seconds",
	"provstream_kafka_connect_errors_total", "provstream_kafka_disconnects_total", "provstream_kafka_request_throttled_seconds",
	"provstream_kafka_read_errors_total", "provstream_kafka_write_errors_total",
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// checkSeries holds a series to its documentation, and the rule that no label
// names a session, turn, agent or user.
func checkSeries(t *testing.T, name string, m *dto.Metric, d metric) {
	t.Helper()
	documented := strings.Split(d.labels, ", ")
	for _, l := range m.Label {
		if !slices.Contains(documented, l.GetName()) {
			t.Errorf("%s has the label %s, documented are [%s]", name, l.GetName(), d.labels)
		}
		if uuid.MatchString(l.GetValue()) {
			t.Errorf("%s{%s=%q}: a label must not name a session, turn or agent", name, l.GetName(), l.GetValue())
		}
	}
}

func series(families []*dto.MetricFamily, name string) int {
	for _, f := range families {
		if f.GetName() == name {
			return len(f.Metric)
		}
	}
	return 0
}

var row = regexp.MustCompile("(?m)^\\| `(provstream_[a-z0-9_]+)` \\| ([a-z]+) \\| ([^|]*) \\| (.*) \\|$")

func documented(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	doc := make(map[string]metric)
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		doc[m[1]] = metric{m[1], m[2], strings.TrimSpace(strings.ReplaceAll(m[3], "`", "")), m[4]}
	}
	return doc
}

// write replaces the tables, each between two comments.
func write(t *testing.T, code map[string]metric) {
	t.Helper()
	text, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	done := make(map[string]bool)
	for _, table := range tables {
		var b bytes.Buffer
		fmt.Fprintf(&b, "<!-- table %s -->\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", table.heading)
		for _, name := range slices.Sorted(maps.Keys(code)) {
			if !strings.HasPrefix(name, table.prefix) || done[name] {
				continue
			}
			done[name] = true
			m := code[name]
			labels := ""
			if m.labels != "" {
				labels = "`" + strings.ReplaceAll(m.labels, ", ", "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, m.kind, labels, m.help)
		}
		fmt.Fprintf(&b, "\n<!-- end -->")
		re := regexp.MustCompile(`(?s)<!-- table ` + table.heading + ` -->.*?<!-- end -->`)
		if !re.Match(text) {
			t.Fatalf("%s has no table %q", metricsDoc, table.heading)
		}
		text = re.ReplaceAllLiteral(text, b.Bytes())
	}
	if err := os.WriteFile(metricsDoc, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
