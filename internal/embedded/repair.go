package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Repair is what Start had to repair in a folder that was not closed properly.
//
// kfake applies a commit in this order, all within one request: the marker of
// each partition (its batch, then its index entry), the group offsets, the
// producer's state in pids.log. A process that is killed in between leaves a
// torn transaction, and kfake, when it loads such a folder, takes what has no
// marker for aborted, without writing that down, and a batch without its index
// entry for one outside any transaction. So before kfake sees the folder
//
//  1. incomplete writes at the end of files are cut off, and missing index
//     entries added: a batch was acknowledged only after both were written;
//  2. the last decision of the journal, if kfake did not get to its end, is
//     carried out: the producer had asked for the commit, and everything it
//     commits was acknowledged;
//  3. every other open transaction gets abort markers and its producer a new
//     epoch, as a coordinator does when a transaction times out.
//
// Each step can be interrupted and done again. A file that is damaged anywhere
// but at its end was not left like that by a kill: it is refused.
type Repair struct {
	Torn      int // incomplete writes cut off, or index entries added
	Completed int // commits carried out
	Aborted   int // open transactions aborted
}

// String is a line for people.
func (r *Repair) String() string {
	return fmt.Sprintf("%d incomplete writes cut off, %d half-written commits completed, %d open transactions aborted", r.Torn, r.Completed, r.Aborted)
}

// transaction is a producer id and its epoch.
type transaction struct {
	pid   int64
	epoch int16
}

// repair returns nil if there was nothing to look at: a new folder, or one that
// was closed.
func repair(dir string) (*Repair, error) {
	if _, err := os.Stat(filepath.Join(dir, "meta.json")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // kfake writes it first when it makes a folder
	}
	if err := os.Remove(filepath.Join(dir, closedMark)); err == nil {
		return nil, nil
	}
	r := new(Repair)
	if err := r.repair(dir); err != nil {
		return nil, fmt.Errorf("data folder %s was not closed properly and cannot be repaired: %w; "+
			"restore it from a copy, or move it away and load the hooks again", dir, err)
	}
	return r, nil
}

func (r *Repair) repair(dir string) error {
	pids, err := openPIDsLog(dir)
	if err != nil {
		return err
	}
	groupsTorn, err := cutLog(filepath.Join(dir, groupsLogFile))
	if err != nil {
		return err
	}
	r.Torn += pids.torn + groupsTorn
	decided, err := lastDecision(dir)
	if err != nil {
		return err
	}
	redo := decided != nil && pids.unfinished(decided)

	topics, err := readTopics(dir)
	if err != nil {
		return err
	}
	aborted := make(map[transaction]bool)
	for _, p := range topics.partitionDirs(dir) {
		log, err := openPartition(p)
		if err != nil {
			return err
		}
		r.Torn += log.torn
		for _, tx := range log.openTransactions() {
			commit := redo && tx == transaction{decided.PID, decided.Epoch}
			if !commit {
				aborted[tx] = true
			}
			if err := log.appendMarker(tx, commit); err != nil {
				return err
			}
		}
	}
	if redo {
		if err := appendOffsets(dir, decided.Offsets, topics); err != nil {
			return err
		}
		if err := pids.end(decided.PID, decided.Epoch); err != nil {
			return err
		}
		r.Completed = 1
	}
	if decided != nil && decided.Version >= 5 {
		if err := pids.bump(transaction{decided.PID, decided.Epoch}); err != nil {
			return err
		}
	}
	r.Aborted = len(aborted)
	for tx := range aborted {
		if err := pids.bump(tx); err != nil {
			return err
		}
	}
	return nil
}

// topicList is kfake's topics.json.
type topicList struct {
	Topics []struct {
		Name       string            `json:"name"`
		ID         []byte            `json:"id"`
		Partitions int               `json:"partitions"`
		Configs    map[string]string `json:"configs"`
	} `json:"topics"`
}

func readTopics(dir string) (*topicList, error) {
	l := new(topicList)
	raw, err := os.ReadFile(filepath.Join(dir, "topics.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, l); err != nil {
		return nil, fmt.Errorf("topics.json: %w", err)
	}
	return l, nil
}

// partitionDirs are the folders of the partitions of topics that exist; those of
// deleted topics may be left behind and are nobody's.
func (l *topicList) partitionDirs(dir string) []string {
	var out []string
	for _, t := range l.Topics {
		for p := range t.Partitions {
			out = append(out, partitionDir(dir, t.Name, p))
		}
	}
	slices.Sort(out)
	return out
}

func partitionDir(dir, topic string, partition int) string {
	return filepath.Join(dir, "partitions", fmt.Sprintf("%s-%d", url.PathEscape(topic), partition))
}

// Names of kfake's append-only state files.
const (
	pidsLogFile   = "pids.log"
	groupsLogFile = "groups.log"
)

// pidState is an entry of pids.log.
type pidState struct {
	Type    string `json:"type"`
	PID     int64  `json:"pid"`
	Epoch   int16  `json:"epoch"`
	TxID    string `json:"txid,omitempty"`
	Timeout int32  `json:"timeout,omitempty"`
	Commit  *bool  `json:"commit,omitempty"`
}

// pidsLog is what pids.log says of each producer.
type pidsLog struct {
	path    string
	size    int64
	torn    int
	entries []pidState
	at      []int64 // where each entry starts
	last    map[int64]pidState
}

func openPIDsLog(dir string) (*pidsLog, error) {
	l := &pidsLog{path: filepath.Join(dir, pidsLogFile), last: make(map[int64]pidState)}
	var err error
	if l.torn, err = cutLog(l.path); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(l.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l.size = int64(len(raw))
	pos := int64(0)
	for data, size := range frames(raw) {
		var e pidState
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("%s: entry at byte %d: %w", pidsLogFile, pos, err)
		}
		l.note(e, pos)
		pos += int64(size)
	}
	return l, nil
}

func (l *pidsLog) note(e pidState, at int64) {
	l.entries, l.at = append(l.entries, e), append(l.at, at)
	if e.Type != "init" { // these do not repeat what stays
		before := l.last[e.PID]
		e.TxID, e.Timeout = before.TxID, before.Timeout
	}
	l.last[e.PID] = e
}

// unfinished tells whether kfake accepted the decision and did not get to its
// end: the epoch was the producer's own, and nothing of it stands beyond.
func (l *pidsLog) unfinished(d *decision) bool {
	if l.size < d.PIDsLog {
		return false // rewritten since, which happens after an end
	}
	known, epoch := false, int16(0)
	for i, e := range l.entries {
		if e.PID != d.PID {
			continue
		}
		if l.at[i] >= d.PIDsLog {
			return false
		}
		known, epoch = true, e.Epoch
	}
	return known && epoch == d.Epoch
}

// end writes that a transaction was committed.
func (l *pidsLog) end(pid int64, epoch int16) error {
	commit := true
	return l.append(pidState{Type: "endtx", PID: pid, Epoch: epoch, Commit: &commit})
}

// bump gives a producer its next epoch, which fences whoever still holds the
// old one; if it has one already, nothing is to be done.
func (l *pidsLog) bump(tx transaction) error {
	e, ok := l.last[tx.pid]
	if !ok || e.Epoch != tx.epoch || e.Epoch >= math.MaxInt16-1 {
		return nil
	}
	return l.append(pidState{Type: "init", PID: e.PID, Epoch: e.Epoch + 1, TxID: e.TxID, Timeout: e.Timeout, Commit: e.Commit})
}

func (l *pidsLog) append(e pidState) error {
	if err := appendFrames(l.path, e); err != nil {
		return err
	}
	l.note(e, math.MaxInt64)
	return nil
}

// appendOffsets commits a transaction's offsets. Doing it twice is doing it once.
// Offsets of a topic that is gone are dropped, as kfake does.
func appendOffsets(dir string, offsets []committedOffset, topics *topicList) error {
	now := time.Now().UnixMilli()
	var entries []committedOffset
	for _, o := range offsets {
		o.LastCommit = &now
		for _, t := range topics.Topics {
			if o.TopicID != nil && bytes.Equal(o.TopicID, t.ID) {
				o.Topic, o.TopicID = t.Name, nil
			}
		}
		if o.TopicID == nil {
			entries = append(entries, o)
		}
	}
	return appendFrames(filepath.Join(dir, groupsLogFile), entries...)
}

func markClosed(dir string) error {
	return os.WriteFile(filepath.Join(dir, closedMark), nil, 0o600)
}

// topicOf names a partition's folder for messages.
func topicOf(path string) string {
	name := filepath.Base(path)
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if topic, err := url.PathUnescape(name[:i]); err == nil {
			return topic + "/" + name[i+1:]
		}
	}
	return name
}
