package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type object = map[string]any

// manifests are the documents of the Kustomize base, by kind/name.
func manifests(t *testing.T) map[string]object {
	t.Helper()
	text, err := os.ReadFile("kubernetes/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct{ Resources []string }
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(k.Resources)+1 {
		t.Errorf("kustomization.yaml lists %v, there are %v", k.Resources, files)
	}
	all := make(map[string]object)
	for _, f := range k.Resources {
		text, err := os.ReadFile(filepath.Join("kubernetes", f))
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(text)) // refuses duplicate names
		for {
			var o object
			err := d.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			all[str(o, "kind")+"/"+str(o, "metadata", "name")] = o
		}
	}
	return all
}

// at walks down members; str and list give what stands there.
func at(v any, path ...string) any {
	for _, p := range path {
		m, _ := v.(object)
		v = m[p]
	}
	return v
}

func str(v any, path ...string) string {
	s, _ := at(v, path...).(string)
	return s
}

func list(v any, path ...string) []any {
	l, _ := at(v, path...).([]any)
	return l
}

// schemas says which members each kind that is used here may have, as of the
// Kubernetes API 1.33: an unknown one is a mistake in writing.
var schemas = map[string][]string{
	"pod": {"serviceAccountName", "automountServiceAccountToken", "terminationGracePeriodSeconds", "securityContext", "topologySpreadConstraints",
		"initContainers", "containers", "volumes", "restartPolicy"},
	"container": {"name", "image", "args", "env", "envFrom", "ports", "startupProbe", "livenessProbe", "readinessProbe", "securityContext", "resources", "volumeMounts"},
	"probe":     {"httpGet", "periodSeconds", "failureThreshold"},
}

func known(t *testing.T, where, schema string, o any) {
	t.Helper()
	m, ok := o.(object)
	if !ok {
		t.Errorf("%s: no object", where)
	}
	for name := range m {
		if !slices.Contains(schemas[schema], name) {
			t.Errorf("%s: a %s has no %s", where, schema, name)
		}
	}
}

// The manifests say what Kubernetes and the binaries understand.
func TestKubernetes(t *testing.T) {
	all := manifests(t)
	flags := environment(t)
	config := at(all["ConfigMap/provstream"], "data").(object)
	for name := range config {
		if !strings.HasPrefix(name, "PROVSTREAM_") || !flags[name] {
			t.Errorf("ConfigMap: no flag reads %s", name)
		}
	}
	for _, s := range []string{"ingest", "aggregator", "signer"} {
		set, ok := all["StatefulSet/"+s]
		if !ok {
			t.Fatalf("no StatefulSet %s", s)
		}
		if str(set, "spec", "serviceName") != s || at(all["Service/"+s], "spec", "clusterIP") != "None" {
			t.Errorf("%s: its pods have no names of their own without a headless service", s)
		}
		label := str(set, "spec", "template", "metadata", "labels", "app.kubernetes.io/name")
		for what, selector := range map[string]any{
			"StatefulSet": at(set, "spec", "selector", "matchLabels"), "Service": at(all["Service/"+s], "spec", "selector"),
			"PodDisruptionBudget": at(all["PodDisruptionBudget/"+s], "spec", "selector", "matchLabels"),
		} {
			if str(selector, "app.kubernetes.io/name") != label {
				t.Errorf("%s %s selects other pods", what, s)
			}
		}
		pod := at(set, "spec", "template", "spec")
		checkPod(t, s, pod, flags)
		c := list(pod, "containers")[0]
		for _, p := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			known(t, s+" "+p, "probe", at(c, p))
		}
		if str(c, "readinessProbe", "httpGet", "path") != "/ready" || str(c, "livenessProbe", "httpGet", "path") != "/healthz" {
			t.Errorf("%s: its probes ask elsewhere", s)
		}
		if !slices.ContainsFunc(list(c, "env"), func(e any) bool {
			return str(e, "name") == "PROVSTREAM_INSTANCE" && str(e, "valueFrom", "fieldRef", "fieldPath") == "metadata.name"
		}) {
			t.Errorf("%s: the instance is not the pod's name", s)
		}
	}
	checkPod(t, "topics", at(all["Job/topics"], "spec", "template", "spec"), flags)
}

func checkPod(t *testing.T, where string, pod any, flags map[string]bool) {
	t.Helper()
	known(t, where, "pod", pod)
	if at(pod, "securityContext", "runAsNonRoot") != true {
		t.Errorf("%s: runs as root", where)
	}
	volumes := make(map[string]bool)
	for _, v := range list(pod, "volumes") {
		volumes[str(v, "name")] = true
	}
	for _, c := range append(list(pod, "initContainers"), list(pod, "containers")...) {
		known(t, where, "container", c)
		if at(c, "securityContext", "readOnlyRootFilesystem") != true || at(c, "securityContext", "allowPrivilegeEscalation") != false {
			t.Errorf("%s: %s may write or become more", where, str(c, "name"))
		}
		for _, m := range list(c, "volumeMounts") {
			if !volumes[str(m, "name")] {
				t.Errorf("%s: no volume %s", where, str(m, "name"))
			}
		}
		for _, e := range list(c, "env") {
			if name := str(e, "name"); strings.HasPrefix(name, "PROVSTREAM_") && !flags[name] {
				t.Errorf("%s: no flag reads %s", where, name)
			}
		}
	}
}

// environment are the variables that the services' help names.
func environment(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, s := range []string{"ingest", "aggregator", "signer"} {
		out, err := exec.Command("go", "run", "../cmd/"+s, "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.FieldsFunc(string(out), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }) {
			if strings.HasPrefix(f, "PROVSTREAM_") {
				names[f] = true
			}
		}
	}
	return names
}

// Docker Compose understands the file, with every profile, and names no variable
// that no flag reads.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file object
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	flags := environment(t)
	for _, name := range strings.FieldsFunc(string(text), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') }) {
		if strings.HasPrefix(name, "PROVSTREAM_") && name != "PROVSTREAM_TAG" && !flags[name] {
			t.Errorf("no flag reads %s", name)
		}
	}
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		t.Skip("SKIPPED: docker compose is not installed (scripts/compose-plugin builds it)")
	}
	out, err := exec.Command("docker", "compose", "-f", "compose/compose.yaml", "--profile", "fleet", "--profile", "monitoring", "config", "--quiet").CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Errorf("docker compose config: %v\n%s", err, out)
	}
}
