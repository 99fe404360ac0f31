package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Compaction happens at the start only, before any client is let in: kfake's
// cleaner takes records of open transactions for newer ones, and it rewrites a
// partition by deleting its files and writing them anew. So there is a copy
// while it works (hard links: the cleaner never writes into a file that is
// there), which the next start puts back if this one is killed.
//
// The folder of the copy changes its name as the work goes on, by rename:
//
//	compaction.prepare  links are being made; of no value
//	compaction          complete; what stands in it is right
//	compaction.done     the cleaner is through; of no value
const (
	copyPreparing = "compaction.prepare"
	copyComplete  = "compaction"
	copyDone      = "compaction.done"
)

// compact compacts the compacted topics, and applies every topic's retention.
func compact(c *kfake.Cluster, dir string) error {
	topics, err := readTopics(dir)
	if err != nil {
		return err
	}
	var dirs []string
	for _, t := range topics.Topics {
		if !strings.Contains(t.Configs["cleanup.policy"], "compact") {
			continue
		}
		for _, p := range c.PartitionInfos(t.Name) {
			if p.LastStableOffset < p.HighWatermark {
				return nil // a client left a transaction open and may come back to it
			}
			dirs = append(dirs, partitionDir(dir, t.Name, int(p.Partition)))
		}
	}
	if err := copyPartitions(dir, dirs); err != nil {
		return fmt.Errorf("data folder: copy before compaction: %w", err)
	}
	c.Compact()
	if err := os.Rename(filepath.Join(dir, copyComplete), filepath.Join(dir, copyDone)); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return os.RemoveAll(filepath.Join(dir, copyDone))
}

// copyPartitions links the partitions' files into the copy.
func copyPartitions(dir string, dirs []string) error {
	preparing := filepath.Join(dir, copyPreparing)
	if err := os.MkdirAll(preparing, 0o700); err != nil {
		return err
	}
	for _, from := range dirs {
		entries, err := os.ReadDir(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		to := filepath.Join(preparing, filepath.Base(from))
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		for _, e := range entries {
			if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Rename(preparing, filepath.Join(dir, copyComplete))
}

// undoCompaction puts back what an interrupted compaction was working on.
func undoCompaction(dir string) error {
	for _, name := range []string{copyPreparing, copyDone} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	complete := filepath.Join(dir, copyComplete)
	entries, err := os.ReadDir(complete)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		to := filepath.Join(dir, "partitions", e.Name())
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		// If the process is killed here the copy of this partition is the only
		// one, and the next start goes on with it.
		if err := os.Rename(filepath.Join(complete, e.Name()), to); err != nil {
			return err
		}
	}
	return os.RemoveAll(complete)
}
