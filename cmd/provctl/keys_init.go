package main

import (
	"path/filepath"

	"provstream/verify"
)

type keysInitCmd struct {
	keyDir `embed:""`
}

func (c *keysInitCmd) Help() string {
	return example("Makes the DAG key and the log key where they are missing, leaves those that are there, and writes the public keys to jwks.json beside "+
		"them. It may be run before every start.",
		"provctl keys init --dir keys")
}

func (c *keysInitCmd) Run(g *globals) error {
	ring, err := ringIn(c.Dir)
	if err != nil {
		return err
	}
	if g.json {
		return printRaw(g, verify.JWKS(ring.Public()))
	}
	for _, k := range ring.Public() {
		g.printf("%s  %s\n", k.ID, k.Use)
	}
	g.printf("public keys in %s\n", filepath.Join(c.Dir, jwksFile))
	return nil
}

// printRaw writes a JSON document that is encoded already.
func printRaw(g *globals, doc []byte) error {
	_, err := g.stdout.Write(append(doc, '\n'))
	return err
}
