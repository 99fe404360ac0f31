// Package grafana makes the Grafana dashboards beside it: one for the fleet of
// agents, one for each service. The JSON files are generated from this one source
// and checked in, because Grafana's provisioning reads files:
//
//	go generate ./deploy/grafana
//
// A test regenerates and compares them, and holds every metric in them to
// docs/metrics.md.
package grafana

//go:generate go test -run TestDashboards -update .

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Panel is one graph or number.
type Panel struct {
	Title string
	// Stat shows the last value as a number, else it is a graph over time.
	Stat  bool
	Unit  string // of Grafana: s, short, Bps, ops, percentunit, dateTimeFromNow
	About string
	Exprs []Expr
}

// Expr is a query and the legend of its series.
type Expr struct{ Query, Legend string }

// Dashboard is a row of panels after another.
type Dashboard struct {
	UID, Title, About string
	Panels            []Panel
}

// rate is the usual expression over a counter.
func rate(by, metric string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, metric)
}

// common are the panels that each service has: rate, errors, duration, lag.
func common(service string) []Panel {
	of := func(metric, more string) string { return fmt.Sprintf("%s{service=%q%s}", metric, service, more) }
	quantile := func(q string) string {
		return fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s[$__rate_interval])))", q, of("provstream_transaction_duration_seconds_bucket", ""))
	}
	return []Panel{
		{Title: "Ready instances", Stat: true, Unit: "short", Exprs: []Expr{{"sum(" + of("provstream_ready", "") + ")", ""}}},
		{Title: "Longest lag", Stat: true, Unit: "s", Exprs: []Expr{{"max(" + of("provstream_consumer_lag_seconds", "") + ")", ""}}},
		{Title: "Partitions", Stat: true, Unit: "short", Exprs: []Expr{{"sum by (state) (" + of("provstream_partitions", "") + ")", "{{state}}"}}},
		{Title: "Starts after the first", Stat: true, Unit: "short", Exprs: []Expr{{"sum(increase(" + of("provstream_restarts_total", "") + "[1h]))", "last hour"}}},
		{Title: "Records", Unit: "ops", Exprs: []Expr{
			{"sum(rate(" + of("provstream_input_records_total", "") + "[$__rate_interval]))", "in"},
			{"sum(rate(" + of("provstream_output_records_total", "") + "[$__rate_interval]))", "out"}}},
		{Title: "Transactions by result", Unit: "ops", Exprs: []Expr{{rate("result", of("provstream_transactions_total", "")), "{{result}}"}}},
		{Title: "Transaction duration", Unit: "s", Exprs: []Expr{{quantile("0.5"), "p50"}, {quantile("0.99"), "p99"}}},
		{Title: "Lag by partition", Unit: "s", Exprs: []Expr{{"topk(10, max by (topic, partition) (" + of("provstream_consumer_lag_seconds", "") + "))", "{{topic}}/{{partition}}"}}},
		{Title: "Held by an open transaction", Unit: "s", About: "For how long nobody can read on; ours take ten seconds at most.",
			Exprs: []Expr{{"topk(10, max by (topic, partition) (" + of("provstream_consumer_held_seconds", "") + "))", "{{topic}}/{{partition}}"}}},
		{Title: "Output", Unit: "Bps", Exprs: []Expr{{"sum(rate(" + of("provstream_output_bytes_total", "") + "[$__rate_interval]))", "bytes"}}},
		{Title: "Memory", Unit: "bytes", Exprs: []Expr{{fmt.Sprintf("process_resident_memory_bytes{job=%q}", "provstream-"+service), "{{instance}}"}}},
	}
}

// Dashboards are all of them, by file name.
func Dashboards() map[string]Dashboard {
	return map[string]Dashboard{
		"fleet.json": {"provstream-fleet", "provstream: the fleet", "What the agents did, and what the evidence says about it.", []Panel{
			{Title: "Records read", Stat: true, Unit: "ops", Exprs: []Expr{{"sum(rate(provstream_ingest_records_total[$__rate_interval]))", ""}}},
			{Title: "DAGs signed", Stat: true, Unit: "ops", Exprs: []Expr{{"sum(rate(provstream_signer_signatures_total[$__rate_interval]))", ""}}},
			{Title: "Open runs", Stat: true, Unit: "short", Exprs: []Expr{{"sum(provstream_aggregator_open_runs)", ""}}},
			{Title: "The clock lies behind", Stat: true, Unit: "s", Exprs: []Expr{{"max(provstream_aggregator_clock_age_seconds)", ""}}},
			{Title: "Records by hook", Unit: "ops", Exprs: []Expr{{rate("topic", "provstream_ingest_records_total"), "{{topic}}"}}},
			{Title: "Dead letters by kind", Unit: "ops", Exprs: []Expr{{rate("topic, kind", "provstream_ingest_dead_letters_total"), "{{topic}} {{kind}}"}}},
			{Title: "Anomalies by code", Unit: "short", About: "Facts about runs, told by their final summaries.",
				Exprs: []Expr{{"sum by (code) (increase(provstream_aggregator_anomalies_total[$__rate_interval])) > 0", "{{code}}"}}},
			{Title: "Segments sealed by reason", Unit: "ops", Exprs: []Expr{{rate("reason", "provstream_aggregator_seals_total"), "{{reason}}"}}},
			{Title: "Lag by service", Unit: "s", Exprs: []Expr{{"max by (service) (provstream_consumer_lag_seconds)", "{{service}}"}}},
			{Title: "Canary: session to verified DAG", Unit: "s", Exprs: []Expr{
				{"histogram_quantile(0.5, sum by (le) (rate(provstream_canary_latency_seconds_bucket[1h])))", "p50"},
				{"histogram_quantile(0.99, sum by (le) (rate(provstream_canary_latency_seconds_bucket[1h])))", "p99"}}},
			{Title: "Canary sessions by result", Unit: "ops", Exprs: []Expr{{rate("result", "provstream_canary_sessions_total"), "{{result}}"}}},
			{Title: "Records lost before they were read", Unit: "short", Exprs: []Expr{{"sum by (topic) (increase(provstream_ingest_lost_offsets_total[1h]))", "{{topic}}"}}},
		}},
		"ingest.json": {"provstream-ingest", "provstream: ingest", "From hook topics to steps.", append(common("ingest"),
			Panel{Title: "Bytes read", Unit: "Bps", Exprs: []Expr{{rate("topic", "provstream_ingest_bytes_total"), "{{topic}}"}}},
			Panel{Title: "Results", Unit: "ops", Exprs: []Expr{
				{"sum(rate(provstream_ingest_steps_total[$__rate_interval])) - sum(rate(provstream_ingest_rejected_total[$__rate_interval]))", "accepted steps"},
				{"sum(rate(provstream_ingest_rejected_total[$__rate_interval]))", "rejected steps"},
				{"sum(rate(provstream_ingest_dropped_total[$__rate_interval]))", "dropped by rule"},
				{"sum(rate(provstream_ingest_dead_letters_total[$__rate_interval]))", "dead letters"},
				{"sum(rate(provstream_ingest_redriven_total[$__rate_interval]))", "redriven"}}},
			Panel{Title: "Reading a batch", Unit: "s", Exprs: []Expr{{"histogram_quantile(0.99, sum by (le) (rate(provstream_ingest_batch_seconds_bucket[$__rate_interval])))", "p99"}}},
			Panel{Title: "Offsets that began anew", Unit: "short", Exprs: []Expr{{"sum(increase(provstream_ingest_resets_total[1h]))", "last hour"}}},
		)},
		"aggregator.json": {"provstream-aggregator", "provstream: aggregator", "From steps to summaries and DAGs.", append(common("aggregator"),
			Panel{Title: "Emitted", Unit: "ops", Exprs: []Expr{{rate("topic", "provstream_aggregator_emitted_total"), "{{topic}}"}}},
			Panel{Title: "Open runs and steps", Unit: "short", Exprs: []Expr{
				{"sum(provstream_aggregator_open_runs)", "open runs"}, {"sum(provstream_aggregator_remembered_runs)", "runs held"},
				{"sum(provstream_aggregator_open_steps)", "open steps"}, {"sum(provstream_aggregator_remembered_ids)", "hashes remembered"}}},
			Panel{Title: "Silence of the oldest open run", Unit: "s", Exprs: []Expr{{"time() - min by (partition) (provstream_aggregator_oldest_open_run_timestamp_seconds)", "partition {{partition}}"}}},
			Panel{Title: "The clock", Unit: "s", About: "How far the observed time lies behind now, and which hook partition holds it.", Exprs: []Expr{
				{"max(provstream_aggregator_clock_age_seconds)", "age"}, {"max by (topic, partition) (provstream_aggregator_clock_holder_seconds)", "held by {{topic}}/{{partition}}"},
				{"max(provstream_aggregator_clock_blocked)", "blocked"}}},
			Panel{Title: "The log's clock lies behind", Unit: "s", About: "Grows while nothing waits for time.", Exprs: []Expr{{"time() - max by (partition) (provstream_aggregator_log_clock_timestamp_seconds)", "partition {{partition}}"}}},
			Panel{Title: "Ticks", Unit: "ops", Exprs: []Expr{
				{"sum(rate(provstream_aggregator_ticks_total[$__rate_interval]))", "written"}, {"sum(rate(provstream_aggregator_tick_errors_total[$__rate_interval]))", "failed"},
				{"sum(rate(provstream_aggregator_clock_observe_errors_total[$__rate_interval]))", "looks that failed"}}},
			Panel{Title: "What a restore would read", Unit: "short", Exprs: []Expr{{"sum by (partition) (provstream_aggregator_replay_records)", "partition {{partition}}"}}},
			Panel{Title: "Restores", Unit: "short", Exprs: []Expr{
				{"sum by (partition) (provstream_aggregator_restore_remaining_records)", "left of partition {{partition}}"},
				{"sum(rate(provstream_aggregator_restored_records_total[$__rate_interval]))", "records a second"},
				{"histogram_quantile(0.99, sum by (le) (rate(provstream_aggregator_restore_seconds_bucket[1h])))", "p99 seconds"}}},
			Panel{Title: "State written", Unit: "Bps", Exprs: []Expr{{"sum(rate(provstream_aggregator_state_bytes_total[$__rate_interval]))", "bytes"}}},
			Panel{Title: "Copies, late and foreign records", Unit: "ops", Exprs: []Expr{
				{"sum(rate(provstream_aggregator_copies_total[$__rate_interval]))", "copies"}, {"sum(rate(provstream_aggregator_late_total[$__rate_interval]))", "late"},
				{"sum(rate(provstream_aggregator_undecodable_total[$__rate_interval]))", "foreign"}}},
		)},
		"signer.json": {"provstream-signer", "provstream: signer", "From DAGs to signed DAGs and heads.", append(common("signer"),
			Panel{Title: "Signatures by key", Unit: "ops", Exprs: []Expr{{rate("key_id", "provstream_signer_signatures_total"), "{{key_id}}"}}},
			Panel{Title: "Signing a batch", Unit: "s", Exprs: []Expr{{"histogram_quantile(0.99, sum by (le) (rate(provstream_signer_batch_seconds_bucket[$__rate_interval])))", "p99"}}},
			Panel{Title: "Leaves", Unit: "short", Exprs: []Expr{{"max by (origin) (provstream_signer_log_size)", "{{origin}}"}}},
			Panel{Title: "Age of the newest head", Unit: "s", Exprs: []Expr{{"time() - max by (origin) (provstream_signer_checkpoint_timestamp_seconds)", "{{origin}}"}}},
			Panel{Title: "Keys", Unit: "short", Exprs: []Expr{{"max by (key_id, use, tenant, status) (provstream_signer_key_info)", "{{use}} {{tenant}} {{status}} {{key_id}}"}}},
			Panel{Title: "Looks at a changed key directory", Unit: "short", Exprs: []Expr{{"sum by (result) (increase(provstream_signer_key_reloads_total[1h]))", "{{result}}"}}},
		)},
	}
}

type object = map[string]any

// Encode is the dashboard as Grafana reads it (schema version 39, Grafana 10 and
// later): numbers four in a row, then graphs two in a row.
func (d Dashboard) Encode() ([]byte, error) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	x, y, height := 0, 0, 0
	for i, p := range d.Panels {
		width, h, kind := 12, 8, "timeseries"
		if p.Stat {
			width, h, kind = 6, 4, "stat"
		}
		if x+width > 24 || height != 0 && h != height {
			x, y = 0, y+height
		}
		height = h
		var targets []object
		for j, e := range p.Exprs {
			targets = append(targets, object{"refId": string(rune('A' + j)), "expr": e.Query, "legendFormat": e.Legend, "datasource": source})
		}
		panel := object{
			"id": i + 1, "type": kind, "title": p.Title, "datasource": source, "targets": targets,
			"gridPos":     object{"x": x, "y": y, "w": width, "h": h},
			"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0}, "overrides": []any{}},
		}
		if p.About != "" {
			panel["description"] = p.About
		}
		panels = append(panels, panel)
		x += width
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(object{
		"uid": d.UID, "title": d.Title, "description": d.About, "tags": []string{"provstream"}, "schemaVersion": 39, "version": 1,
		"editable": true, "refresh": "30s", "timezone": "utc", "time": object{"from": "now-6h", "to": "now"}, "panels": panels,
		"templating": object{"list": []object{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}}},
	})
	return b.Bytes(), err
}
