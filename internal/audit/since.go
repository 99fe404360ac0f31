package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"provstream/verify"
)

// Seen holds the last checkpoint that somebody has seen of each log: what
// makes rewriting history visible even to one who trusts the log key. On disk
// it is one signed note after the other, with an empty line between them; a
// file with the note of a single prov.checkpoints record is one too.
type Seen map[string]SeenHead

// SeenHead is a head with the note that it comes from.
type SeenHead struct {
	verify.Checkpoint
	Note []byte
}

// ReadSeen reads the file and checks the notes with the pinned keys. A file
// that does not exist is an empty Seen.
func ReadSeen(path string, keys *verify.Keys) (Seen, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Seen{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoints seen before: %w", err)
	}
	notes, err := splitNotes(text)
	if err != nil {
		return nil, fmt.Errorf("checkpoints seen before, %s: %w", path, err)
	}
	seen := Seen{}
	for i, n := range notes {
		c, err := keys.Checkpoint(n)
		if err != nil {
			return nil, fmt.Errorf("checkpoints seen before, %s, note %d: %w", path, i+1, err)
		}
		if _, twice := seen[c.Origin]; twice {
			return nil, fmt.Errorf("checkpoints seen before, %s: two notes of %s", path, c.Origin)
		}
		seen[c.Origin] = SeenHead{c, n}
	}
	return seen, nil
}

var dash = []byte("— ")

// splitNotes cuts notes behind their blocks of signature lines.
func splitNotes(text []byte) ([][]byte, error) {
	var notes [][]byte
	var note []byte
	signed := false
	for line := range bytes.Lines(text) {
		isSignature := bytes.HasPrefix(line, dash)
		switch {
		case signed && !isSignature:
			notes, note, signed = append(notes, note), nil, false
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
		case len(note) == 0 && len(bytes.TrimSpace(line)) == 0:
			continue
		}
		note = append(note, line...)
		signed = signed || isSignature
	}
	if signed {
		notes, note = append(notes, note), nil
	}
	if len(note) > 0 {
		return nil, errors.New("text without a signature line at the end")
	}
	return notes, nil
}

// Write replaces the file.
func (s Seen) Write(path string) error {
	var b bytes.Buffer
	for i, origin := range slices.Sorted(maps.Keys(s)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.Write(s[origin].Note)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".checkpoints-*")
	if err != nil {
		return fmt.Errorf("keep checkpoints: %w", err)
	}
	_, err = tmp.Write(b.Bytes())
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("keep checkpoints: %w", err)
	}
	return nil
}
