package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCompaction holds that a start compacts, that what it compacts reads the
// same, and that a kill in the middle of it changes nothing.
func TestCompaction(t *testing.T) {
	dir := t.TempDir()
	b := start(t, Config{DataDir: dir, Partitions: 1})
	write := func(key, value string) {
		cl := client(t, b.Addr, kgo.DefaultProduceTopic("prov.keys"))
		defer cl.Close()
		if err := cl.ProduceSync(t.Context(), kgo.KeyStringRecord(key, value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		write("a", fmt.Sprint("a", i))
		write("b", fmt.Sprint("b", i))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	before := readFolder(t, dir)

	// The last batch is the active segment and stays; of the rest the newest
	// record of each key does.
	want := []string{"b3", "a4", "b4"}
	b = start(t, Config{DataDir: dir})
	if got := readPartition(t, b.Addr, "prov.keys", 0); !slices.Equal(got, want) {
		t.Errorf("compacted to %v, want %v", got, want)
	}
	write("a", "a5")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	for name, kill := range map[string]func(dir string, partition string) error{
		"files deleted": func(_, partition string) error {
			return os.Remove(filepath.Join(partition, "0.dat"))
		},
		"half written": func(_, partition string) error {
			return os.WriteFile(filepath.Join(partition, "8.dat"), []byte("half"), 0o644)
		},
		"undone by half": func(_, partition string) error { return os.RemoveAll(partition) },
		"done": func(dir, _ string) error {
			return os.Rename(filepath.Join(dir, copyComplete), filepath.Join(dir, copyDone))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before.write(t, dir)
			partition := partitionDir(dir, "prov.keys", 0)
			if err := copyPartitions(dir, []string{partition}); err != nil {
				t.Fatal(err)
			}
			// As the cleaner does: remove, then write anew. The copy's links
			// keep the bytes.
			if err := kill(dir, partition); err != nil {
				t.Fatal(err)
			}
			b := start(t, Config{DataDir: dir})
			if got := readPartition(t, b.Addr, "prov.keys", 0); !slices.Equal(got, want) {
				t.Errorf("after the kill: %v, want %v", got, want)
			}
		})
	}
}
