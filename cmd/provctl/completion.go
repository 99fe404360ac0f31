package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"provstream/internal/generate"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

func (c *completionCmd) Help() string {
	return example("Prints what the shell needs to complete commands, flags and their values.",
		`provctl completion zsh >> ~/.zshrc`,
		`source <(provctl completion bash)`,
		`provctl completion fish > ~/.config/fish/completions/provctl.fish`)
}

func (c *completionCmd) Run(g *globals) error {
	g.printf("%s\n", map[string]string{
		"bash": `complete -o default -C "provctl complete" provctl`,
		"zsh":  "autoload -U +X bashcompinit && bashcompinit\n" + `complete -o default -C "provctl complete" provctl`,
		"fish": `complete -c provctl -a '(env COMP_LINE=(commandline -cp) provctl complete)'`,
	}[c.Shell])
	return nil
}

// completeCmd answers the shell: the line so far is in COMP_LINE (bash(1),
// Programmable Completion), the candidates go to stdout.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"What the shell adds; COMP_LINE says it all."`
}

func (c *completeCmd) Help() string {
	return example("Candidates for the command line in COMP_LINE; shells call it.", "provctl completion bash")
}

func (c *completeCmd) Run(g *globals) error {
	var grammar cli
	parser, err := newParser(&grammar)
	if err != nil {
		return err
	}
	line := g.getenv("COMP_LINE")
	if n, err := strconv.Atoi(g.getenv("COMP_POINT")); err == nil && n >= 0 && n < len(line) {
		line = line[:n]
	}
	for _, candidate := range complete(parser.Model.Node, line) {
		g.printf("%s\n", candidate)
	}
	return nil
}

// complete returns what may stand for the last word of the line.
func complete(root *kong.Node, line string) []string {
	words := strings.Fields(line)
	last := ""
	if n := len(words); n > 0 && !strings.HasSuffix(line, " ") {
		words, last = words[:n-1], words[n-1]
	}
	node, before := root, ""
	for _, w := range words[min(1, len(words)):] {
		before = w
		if i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == w }); i >= 0 {
			node = node.Children[i]
		}
	}
	if f := flagOf(node, before); f != nil && !f.IsBool() {
		return values(f, last)
	}
	if name, value, ok := strings.Cut(last, "="); ok {
		if f := flagOf(node, name); f != nil {
			return values(f, value) // the shell breaks words at =
		}
	}
	var out []string
	if strings.HasPrefix(last, "-") {
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				out = append(out, "--"+f.Name)
			}
		}
	} else {
		for _, c := range node.Children {
			if !c.Hidden {
				out = append(out, c.Name)
			}
		}
	}
	return begin(out, last)
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// values are the values of a flag that has a list of them; of a list of values
// the last one is completed.
func values(f *kong.Flag, partial string) []string {
	list := []string{}
	switch {
	case f.Enum != "":
		list = f.EnumSlice()
	case f.Name == "faults":
		list = append(generate.FaultNames(), "all", "list")
	}
	done := partial[:strings.LastIndexByte(partial, ',')+1]
	for i := range list {
		list[i] = done + list[i]
	}
	return begin(list, partial)
}

func begin(list []string, prefix string) []string {
	list = slices.DeleteFunc(list, func(s string) bool { return !strings.HasPrefix(s, prefix) })
	slices.Sort(list)
	return slices.Compact(list)
}

// helpCmd is --help by another name. run turns it into that.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command; all of them are listed without."`
}

func (c *helpCmd) Help() string {
	return example("The same as --help after the command: what it does, its flags with their environment variables, examples. The exit status is the same "+
		"everywhere: 0 what was checked holds, 1 it does not hold, 2 the command could not run.",
		"provctl help topics create")
}

func (c *helpCmd) Run(*globals) error { return nil }

type manCmd struct{}

func (c *manCmd) Help() string {
	return example("Prints the manual page of provctl with every command and flag.", "provctl man | man -l -")
}

func (c *manCmd) Run(g *globals) error {
	var grammar cli
	parser, err := newParser(&grammar)
	if err != nil {
		return err
	}
	m := parser.Model
	g.printf(".TH PROVCTL 1\n.SH NAME\nprovctl \\- %s\n.SH SYNOPSIS\n.B provctl\n.I command\n[flags]\n", roff(m.Help))
	g.printf(".SH EXIT STATUS\n0: what was checked holds. 1: it does not hold. 2: the command could not run.\n")
	g.printf(".SH ENVIRONMENT\nEach flag may also come from the environment, as PROVSTREAM_ and its name in capitals. NO_COLOR turns colours off.\n")
	g.printf(".SH COMMANDS\n")
	for _, leaf := range m.Leaves(true) {
		g.printf(".SS %s\n%s\n", roff(leaf.FullPath()), roff(leaf.Help))
		for _, paragraph := range strings.Split(leaf.Detail, "\n\n") {
			if strings.HasPrefix(paragraph, "    ") {
				g.printf(".PP\n.nf\n%s\n.fi\n", roff(strings.TrimRight(paragraph, "\n")))
			} else {
				g.printf(".PP\n%s\n", roff(paragraph))
			}
		}
		for _, a := range leaf.Positional {
			g.printf(".TP\n.I %s\n%s\n", roff(a.Summary()), roff(a.Help))
		}
		for _, group := range leaf.AllFlags(true) {
			for _, f := range group {
				if f.Name != "help" {
					text := roff(f.Help)
					if len(f.Envs) != 0 {
						text += "\n.br\nEnvironment: " + roff(strings.Join(f.Envs, ", "))
					}
					g.printf(".TP\n.B %s\n%s\n", roff(f.String()), text)
				}
			}
		}
	}
	return nil
}

// roff escapes text for man(7).
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
