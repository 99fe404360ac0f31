package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"provstream/verify"
)

// What the README points at exists, and every command line of provctl in it
// parses.
func TestReadmeStaysTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("README.md points at %s, which is not there", m[1])
		}
	}
	// Some flags are files that are looked at when the line is parsed.
	ring, err := newRing()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("pinned.json", verify.JWKS(ring.Public()), 0o644); err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for _, part := range strings.Split(line, "|") {
			words := strings.Fields(part)
			if len(words) < 2 || words[0] != "provctl" {
				continue
			}
			if i := len(words) - 2; words[i] == ">" {
				words = words[:i]
			}
			var c cli
			parser, err := newParser(&c)
			if err != nil {
				t.Fatal(err)
			}
			commands++
			if _, err := parser.Parse(words[1:]); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(part), err)
			}
		}
	}
	if commands < 7 {
		t.Errorf("%d command lines found in README.md", commands)
	}
}

// The packages that the architecture names are there.
func TestArchitectureStaysTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`((?:internal|cmd)/[a-z/]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 20 {
		t.Errorf("%d packages are named", len(names))
	}
	for _, m := range names {
		if info, err := os.Stat(filepath.Join(root, m[1])); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md names %s, which is not there", m[1])
		}
	}
}
