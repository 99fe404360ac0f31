// Package docscheck holds docs/conformance.md to the tree: every test it names
// exists, and nothing that it must mention is missing.
package docscheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"provstream/internal/lineage"
	"provstream/internal/window"
)

const root = "../.."

func conformance(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tests returns every test, fuzz target and example of the module as
// package.Name, the package being the name of its directory.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		pkg := filepath.Base(filepath.Dir(path))
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				found[pkg+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var testName = regexp.MustCompile("`([a-z0-9]+\\.(?:Test|Fuzz|Example)\\w*)(?:/(\\w+))?`")

// TestNamedTestsExist: a requirement whose test was renamed or dropped is not
// held by anything.
func TestNamedTestsExist(t *testing.T) {
	have := tests(t)
	named := testName.FindAllStringSubmatch(conformance(t), -1)
	if len(named) < 100 {
		t.Fatalf("docs/conformance.md names %d tests only: did its form change?", len(named))
	}
	for _, n := range named {
		if !have[n[1]] {
			t.Errorf("docs/conformance.md names %s, which is not in the tree", n[1])
		}
		if n[2] == "" {
			continue
		}
		scenario := filepath.Join(root, "internal", "window", "testdata", "scenarios", n[2]+".txt")
		if _, err := os.Stat(scenario); n[1] != "window.TestScenarios" || err != nil {
			t.Errorf("docs/conformance.md names %s/%s, which is no scenario", n[1], n[2])
		}
	}
}

// TestEveryScenarioIsNamed: each was worked out for a rule.
func TestEveryScenarioIsNamed(t *testing.T) {
	text := conformance(t)
	files, err := filepath.Glob(filepath.Join(root, "internal", "window", "testdata", "scenarios", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".txt"); !strings.Contains(text, "`window.TestScenarios/"+name+"`") {
			t.Errorf("docs/conformance.md does not name the scenario %s", name)
		}
	}
}

// TestEveryRequirementHasATest: a row that says met names a test.
func TestEveryRequirementHasATest(t *testing.T) {
	for i, line := range strings.Split(conformance(t), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 3 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[1]) == "status" {
			continue
		}
		if status := strings.TrimSpace(cells[1]); (strings.HasPrefix(status, "met") || strings.HasPrefix(status, "checked")) && !testName.MatchString(cells[2]) {
			t.Errorf("docs/conformance.md:%d names no test: %s", i+1, line)
		}
	}
}

// TestNothingIsMissing: each anomaly, closing reason, seal and edge rule has a
// row of its own, in the rules too.
func TestNothingIsMissing(t *testing.T) {
	var rows []string
	for _, c := range lineage.Codes() {
		rows = append(rows, "`"+c.String()+"`")
	}
	for _, r := range window.Reasons() {
		rows = append(rows, "sealed_by `"+r.String()+"`")
	}
	for _, c := range []string{"complete", "grace", "idle", "session"} {
		rows = append(rows, "closed_by `"+c+"`")
	}
	for n := 1; n <= 8; n++ {
		rows = append(rows, fmt.Sprintf("edge rule %d:", n))
	}
	text := conformance(t)
	for _, row := range rows {
		if !strings.Contains(text, "\n| "+row) {
			t.Errorf("docs/conformance.md has no row %s", row)
		}
	}
	rules, err := os.ReadFile(filepath.Join(root, "docs", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range lineage.Codes() {
		if !strings.Contains(string(rules), "`"+c.String()+"`") {
			t.Errorf("docs/rules.md does not explain %s", c)
		}
	}
}
