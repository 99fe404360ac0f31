package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"provstream/internal/keys"
	"provstream/verify"
)

type keysInitCmd struct {
	keyDir `embed:""`
	From   string `help:"Make no keys: copy those of this directory, whatever their mode, with mode 0600. For secrets that are mounted readable to a group." placeholder:"DIR"`
}

func (c *keysInitCmd) Help() string {
	return example("Makes the DAG key and the log key where they are missing, leaves those that are there, and writes the public keys to jwks.json beside "+
		"them. It may be run before every start.",
		"provctl keys init --dir keys",
		"provctl keys init --from /secret --dir /keys")
}

func (c *keysInitCmd) Run(g *globals) error {
	if c.From != "" {
		if err := c.copy(); err != nil {
			return err
		}
		if _, err := keys.Load(c.Dir); err != nil { // so that none is made below
			return err
		}
	}
	ring, err := ringIn(c.Dir)
	if err != nil {
		return err
	}
	if g.json {
		_, err := g.stdout.Write(append(verify.JWKS(ring.Public()), '\n'))
		return err
	}
	for _, k := range ring.Public() {
		g.printf("%s  %s\n", k.ID, k.Use)
	}
	g.printf("public keys in %s\n", filepath.Join(c.Dir, jwksFile))
	return nil
}

// copy copies the files of the directory; a Secret's are links into a folder
// whose name begins with two dots.
func (c *keysInitCmd) copy() error {
	entries, err := os.ReadDir(c.From)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	copied := 0
	for _, e := range entries {
		path := filepath.Join(c.From, e.Name())
		info, err := os.Stat(path)
		if err != nil || strings.HasPrefix(e.Name(), ".") || !info.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		target := filepath.Join(c.Dir, e.Name())
		if err := os.WriteFile(target+".new", data, 0o600); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
		if err := os.Rename(target+".new", target); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
		copied++
	}
	if copied == 0 {
		return errors.New("--from: " + c.From + " holds no files")
	}
	return nil
}
