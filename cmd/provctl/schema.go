package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"provstream/internal/acs/schema"
)

type schemaCmd struct {
	List  schemaListCmd  `cmd:"" help:"List the JSON Schemas: those that envelopes are judged by, and those of our own outputs."`
	Print schemaPrintCmd `cmd:"" help:"Print one schema as it is embedded."`
}

type schemaListCmd struct{}

func (c *schemaListCmd) Help() string {
	return example("The names below outputs/ are the formats that provstream writes; the others are ACS v0.1.0 as ingest reads it.",
		"provctl schema list", "provctl schema list --json")
}

// schemaEntry is one schema of the list.
type schemaEntry struct {
	Name  string `json:"name"`
	ID    string `json:"id"`
	Title string `json:"title"`
}

func (c *schemaListCmd) Run(g *globals) error {
	var list []schemaEntry
	for _, name := range schema.List() {
		text, err := schema.Read(name)
		if err != nil {
			return err
		}
		var head struct {
			ID    string `json:"$id"`
			Title string `json:"title"`
		}
		if err := json.Unmarshal(text, &head); err != nil {
			return fmt.Errorf("schema %s: %w", name, err)
		}
		list = append(list, schemaEntry{name, head.ID, head.Title})
	}
	if g.json {
		return g.printJSON(map[string]any{"schemas": list})
	}
	width := 0
	for _, e := range list {
		width = max(width, len(e.Name))
	}
	for _, e := range list {
		g.printf("%-*s  %s\n", width, e.Name, e.Title)
	}
	return nil
}

type schemaPrintCmd struct {
	Name string `arg:"" help:"A name of schema list, or a $id."`
}

func (c *schemaPrintCmd) Help() string {
	return example("Prints the text as it is embedded.", "provctl schema print hooks/turn-end.json", "provctl schema print outputs/dag.json")
}

func (c *schemaPrintCmd) Run(g *globals) error {
	name := strings.TrimPrefix(c.Name, schema.Base)
	if id, ok := strings.CutPrefix(c.Name, schema.OutputBase); ok {
		name = "outputs/" + id
	}
	text, err := schema.Read(name)
	if err != nil {
		return fmt.Errorf("no schema is called %q: provctl schema list tells which there are", c.Name)
	}
	_, err = g.stdout.Write(text)
	return err
}
