package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.yaml.in/yaml/v3"

	"provstream/internal/pipeline"
	"provstream/internal/topics"
)

const rulesFile = "prometheus/rules.yml"

// promtool runs Prometheus' tool, or skips the test.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: promtool is not installed (Debian: apt-get install prometheus)")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", rulesFile)
	promtool(t, "test", "rules", "prometheus/rules_test.yml")
}

type rule struct {
	Alert, Record, Expr string
	For                 string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Each alert has a severity, a duration, a runbook that exists, tests for firing
// and for silence, and asks only for metrics that there are.
func TestAlertsAreComplete(t *testing.T) {
	tests, err := os.ReadFile("prometheus/rules_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := make(map[string]bool)
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(operations), -1) {
		anchors[anchor(h[1])] = true
	}
	known := documented(t)
	for _, r := range rules(t) {
		for _, m := range regexp.MustCompile(`provstream_[a-z0-9_]+`).FindAllString(r.Expr, -1) {
			if _, ok := known[m]; !ok {
				if _, ok := known[strings.TrimSuffix(m, "_bucket")]; !ok {
					t.Errorf("%s%s asks for %s, which docs/metrics.md does not list", r.Alert, r.Record, m)
				}
			}
		}
		if r.Alert == "" {
			continue
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.For == "" || r.Annotations["summary"] == "" {
			t.Errorf("%s: without for or summary", r.Alert)
		}
		if page, a, _ := strings.Cut(r.Annotations["runbook"], "#"); page != "docs/operations.md" || !anchors[a] {
			t.Errorf("%s: the runbook %q is no section", r.Alert, r.Annotations["runbook"])
		}
		for _, kind := range []string{" fires\n", " is silent\n"} {
			if !strings.Contains(string(tests), "name: "+r.Alert+kind) {
				t.Errorf("%s: no test that it%s", r.Alert, strings.TrimSpace(kind))
			}
		}
	}
}

// anchor is what a heading becomes in a link.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(heading, "")), " ", "-")
}

// evaluate lets promtool judge alerts over what was scraped: the first look is
// repeated for five minutes, the second goes on for an hour, counters at the pace
// of the last look but one. firing must be the alerts that fire within it, of
// those in asked.
func evaluate(t *testing.T, looks [][]*dto.MetricFamily, from time.Time, asked, firing []string) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	// promtool's clock begins at 0: stand the instants in relation to it.
	if err := os.WriteFile(filepath.Join(dir, "rules.yml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n")
	first, last := flatten(looks[0], from), flatten(looks[len(looks)-1], from)
	for _, name := range slices.Sorted(mapsKeys(last)) {
		now := last[name]
		before, ok := first[name]
		values := fmt.Sprintf("%gx10 %g+%gx60", before.value, now.value, step(before, now))
		if !ok {
			values = fmt.Sprintf("_x10 %g+%gx60", now.value, step(sample{}, now))
		}
		fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", strings.ReplaceAll(name, "'", "''"), values)
	}
	b.WriteString("    promql_expr_test:\n")
	for _, a := range asked {
		want := 0
		if slices.Contains(firing, a) {
			want = 1
		}
		fmt.Fprintf(&b, "      - expr: 'clamp_max(count(max_over_time(ALERTS{alertname=\"%s\",alertstate=\"firing\"}[40m])) or vector(0), 1)'\n", a)
		fmt.Fprintf(&b, "        eval_time: 40m\n        exp_samples: [{labels: '{}', value: %d}]\n", want)
	}
	file := filepath.Join(dir, "live_test.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

type sample struct {
	value   float64
	counter bool
}

// step is how much a counter goes on growing in a minute: by what it grew between
// the looks.
func step(before, now sample) float64 {
	if !now.counter {
		return 0
	}
	if now.value < before.value { // of a process that was started since
		return now.value
	}
	return now.value - before.value
}

// flatten makes series of families; instants become seconds since from.
func flatten(families []*dto.MetricFamily, from time.Time) map[string]sample {
	all := make(map[string]sample)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "provstream_") && f.GetName() != "up" || f.GetType() == dto.MetricType_HISTOGRAM {
			continue
		}
		for _, m := range f.Metric {
			labels := []string{`instance="i"`}
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if strings.HasSuffix(f.GetName(), "_timestamp_seconds") {
				v -= float64(from.UnixMilli()) / 1000
			}
			all[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = sample{v, f.GetType() == dto.MetricType_COUNTER}
		}
	}
	return all
}

func mapsKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func alertNames(t *testing.T) (names []string) {
	for _, r := range rules(t) {
		if r.Alert != "" {
			names = append(names, r.Alert)
		}
	}
	return names
}

// A healthy pipeline under load is silent.
func TestHealthyPipelineIsSilent(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 6)
	w.drained(t)
	until(t, "it is ready", func() bool { return sum(w.gather(t), "provstream_ready") == 3 })
	// The gauges may still show the lag of their last sample.
	noLag := func() {
		until(t, "no lag is told", func() bool { return sum(w.gather(t), "provstream_consumer_lag_records") == 0 })
	}
	noLag()
	from := time.Now() // no clock is ahead of it
	before := w.gather(t)
	w.send(t, 2, 6)
	w.drained(t)
	noLag()
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, from, alertNames(t), nil)
}

// Dead letters, a kind that there never was, and anomalies.
func TestAlertsOnDeadLettersAndAnomalies(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 6)
	w.drained(t)
	before := w.gather(t)
	w.send(t, 2, 6, "payload", "step_conflict")
	w.drained(t)
	until(t, "the conflict is told", func() bool {
		return sum(w.gather(t), "provstream_aggregator_anomalies_total", "code", "step_conflict") > 0
	})
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now().Add(-10*time.Minute),
		[]string{"ProvstreamDeadLetters", "ProvstreamDeadLetterKindNew", "ProvstreamAnomalies", "ProvstreamCoverageGap", "ProvstreamLag"},
		[]string{"ProvstreamDeadLetters", "ProvstreamDeadLetterKindNew", "ProvstreamAnomalies"})
}

// Ingest may no longer write steps: it begins again and again, and time stands
// still.
func TestAlertsOnTransactionsThatFail(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 6)
	w.drained(t)
	before := w.gather(t)
	w.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.Topic(topics.Steps), Err: kerr.TopicAuthorizationFailed, Count: -1})
	w.send(t, 2, 4)
	until(t, "ingest fails again and again", func() bool {
		now := w.gather(t)
		return sum(now, "provstream_transactions_total", "service", "ingest", "result", "failed") >= 4 && sum(now, "provstream_restarts_total", "service", "ingest") >= 4
	})
	now := w.gather(t)
	age(now, "provstream_aggregator_clock_age_seconds", 300) // it is minutes until it is old enough
	evaluate(t, [][]*dto.MetricFamily{before, now}, time.Now().Add(-10*time.Minute),
		[]string{"ProvstreamTransactionsAbort", "ProvstreamRestarting", "ProvstreamClockStuck", "ProvstreamCoverageGap", "ProvstreamFenced"},
		[]string{"ProvstreamTransactionsAbort", "ProvstreamRestarting", "ProvstreamClockStuck"})
}

// Nobody can fetch: records wait, and time stands still.
func TestAlertsOnLag(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 6)
	w.drained(t)
	until(t, "lag is told", func() bool { return series(w.gather(t), "provstream_consumer_lag_seconds") > 0 })
	before := w.gather(t)
	w.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.KafkaStorageError, Count: -1})
	w.send(t, 2, 4)
	var now []*dto.MetricFamily
	until(t, "lag is seen", func() bool {
		now = w.gather(t)
		return sum(now, "provstream_consumer_lag_seconds", "service", "ingest") > 0
	})
	age(now, "provstream_consumer_lag_seconds", 300)
	age(now, "provstream_aggregator_clock_age_seconds", 300)
	evaluate(t, [][]*dto.MetricFamily{before, now}, time.Now().Add(-10*time.Minute),
		[]string{"ProvstreamLag", "ProvstreamClockStuck", "ProvstreamCoverageGap"}, []string{"ProvstreamLag", "ProvstreamClockStuck"})
}

// age adds seconds to the series of a gauge that show any at all.
func age(families []*dto.MetricFamily, name string, seconds float64) {
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if v := m.Gauge.GetValue(); v > 0 {
				v += seconds
				m.Gauge.Value = &v
			}
		}
	}
}

// Hook records that are deleted before they are read.
func TestAlertOnCoverageGap(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 6)
	w.drained(t)
	before := w.gather(t)
	if err := w.pipe.Stop(); err != nil {
		t.Fatal(err)
	}
	w.send(t, 2, 6)
	topic := w.Topic(topics.Hook("steps/userMessage"))
	adm := kadm.NewClient(w.Client(t))
	ends, err := adm.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	w.start(t, w.config())
	w.send(t, 3, 6) // what comes later shows where the log begins now
	until(t, "the gap is told", func() bool { return sum(w.gather(t), "provstream_ingest_lost_offsets_total", "topic", topic) > 0 })
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now().Add(-10*time.Minute), []string{"ProvstreamCoverageGap"}, []string{"ProvstreamCoverageGap"})
}

// DAGs wait while the signer's key directory is gone or its transactions cannot end.
func TestAlertOnOldCheckpoint(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 4)
	w.drained(t)
	w.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError, Count: -1, TopLevel: true, When: func(r kmsg.Request) bool {
		e, ok := r.(*kmsg.EndTxnRequest)
		return ok && strings.Contains(e.TransactionalID, pipeline.Signer)
	}})
	w.send(t, 2, 4)
	var now []*dto.MetricFamily // of a moment at which the signer lives
	until(t, "DAGs wait", func() bool {
		now = w.gather(t)
		return sum(now, "provstream_consumer_lag_records", "service", pipeline.Signer) > 0 && series(now, "provstream_signer_checkpoint_timestamp_seconds") > 0
	})
	evaluate(t, [][]*dto.MetricFamily{now, now}, time.Now(), []string{"ProvstreamCheckpointOld"}, []string{"ProvstreamCheckpointOld"})
}

// A restore that does not end: reading prov.steps is held up.
func TestAlertOnSlowRestore(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 6)
	w.drained(t)
	if err := w.pipe.Stop(); err != nil {
		t.Fatal(err)
	}
	w.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Count: -1, Err: kerr.KafkaStorageError, Topic: w.Topic(topics.AggregatorState)})
	w.start(t, w.config())
	var now []*dto.MetricFamily
	until(t, "partitions are opening", func() bool {
		now = w.gather(t)
		return sum(now, "provstream_partitions", "service", pipeline.Aggregator, "state", "opening") > 0
	})
	evaluate(t, [][]*dto.MetricFamily{now, now}, time.Now(), []string{"ProvstreamRestoreSlow", "ProvstreamNotReady"}, []string{"ProvstreamRestoreSlow", "ProvstreamNotReady"})
}

// Somebody else writes to prov.steps.
func TestAlertOnForeignRecords(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 2)
	w.drained(t)
	before := w.gather(t)
	cl := w.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: w.Topic(topics.Steps), Partition: 0, Value: []byte("hello")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is counted", func() bool { return sum(w.gather(t), "provstream_aggregator_undecodable_total") > 0 })
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now().Add(-10*time.Minute), []string{"ProvstreamForeignRecords"}, []string{"ProvstreamForeignRecords"})
}
