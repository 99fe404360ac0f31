package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// printJSON writes v as the one JSON document of a --json run.
func (g *globals) printJSON(v any) error {
	enc := json.NewEncoder(g.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printf writes text for people to stdout; commands call it only without --json.
func (g *globals) printf(format string, args ...any) {
	fmt.Fprintf(g.stdout, format, args...)
}

// progress shows one line on stderr that the next one overwrites. It is silent
// when stderr is no terminal.
func (g *globals) progress(format string, args ...any) {
	if g.tty {
		fmt.Fprintf(g.stderr, "\r\x1b[2K"+format, args...)
	}
}

// bar is progress of which the whole is known.
func (g *globals) bar(what string, done, whole int64) {
	const width = 30
	if whole <= 0 {
		return
	}
	done = min(max(done, 0), whole)
	full := int(done * width / whole)
	g.progress("%s [%s%s] %3d %%", what, strings.Repeat("#", full), strings.Repeat(".", width-full), 100*done/whole)
}

// progressDone clears the progress line.
func (g *globals) progressDone() {
	if g.tty {
		fmt.Fprint(g.stderr, "\r\x1b[2K")
	}
}

// example formats the example block of a command's Help: the text, an empty
// line, and each command line indented (kong keeps indented lines as they are).
func example(text string, lines ...string) string {
	var b strings.Builder
	b.WriteString(text)
	b.WriteString("\n\nExample:\n\n")
	for _, l := range lines {
		b.WriteString("    " + l + "\n")
	}
	return b.String()
}

// nonNil makes an empty list print as [] and not as null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// instant prints a time in ms.
func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
