// Package deploy holds what an operator runs and looks at, and the tests that hold
// it to the code:
//
//	compose/      Docker Compose: Kafka, topics, the three services, Prometheus, Grafana
//	kubernetes/   Kustomize: StatefulSets, disruption budgets, network policy
//	prometheus/   recording and alert rules, and their tests
//	grafana/      dashboards, generated from dashboards.go
//
// The tests here run the pipeline, read its metrics as Prometheus would, and
// compare them with docs/metrics.md; they provoke what the alerts are about and
// let promtool say whether each fires. promtool is in Debian's package
// prometheus; without it those tests skip, aloud.
package deploy
