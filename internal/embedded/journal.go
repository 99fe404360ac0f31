package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Files of ours in the data folder, beside those of kfake.
const (
	journalFile = "commits.journal"
	closedMark  = "closed" // the last process closed the folder
)

// decision is one line of the journal: a transaction that its producer asked to
// commit. It is written before kfake starts to apply it.
type decision struct {
	PID     int64 `json:"pid"`
	Epoch   int16 `json:"epoch"`
	Version int16 `json:"version"` // of the EndTxn request; from 5 on the epoch is bumped
	// PIDsLog is the size of kfake's pids.log at that moment. kfake appends to
	// it when it has applied the transaction, so what stands beyond tells
	// whether it has.
	PIDsLog int64             `json:"pids_log"`
	Offsets []committedOffset `json:"offsets,omitempty"`
}

// committedOffset has kfake's names, which are those of groups.log.
type committedOffset struct {
	TopicID    []byte  `json:"id,omitempty"` // where the request has it instead of a name
	Type       string  `json:"type"`
	Group      string  `json:"g"`
	Topic      string  `json:"t,omitempty"`
	Partition  int32   `json:"p,omitempty"`
	Offset     int64   `json:"o,omitempty"`
	Epoch      int32   `json:"e,omitempty"`
	Metadata   *string `json:"m,omitempty"`
	LastCommit *int64  `json:"lc,omitempty"`
}

// journal writes decisions. Its methods run in kfake's one goroutine, which
// handles requests one after the other, so at most the last line can be of a
// transaction that is not wholly applied.
type journal struct {
	dir    string
	log    *slog.Logger
	file   *os.File
	size   int64
	staged map[int64]staged // by producer id
}

// staged is what one open transaction will commit.
type staged struct {
	epoch   int16
	offsets []committedOffset
}

// maxJournal is the size at which the journal starts again: all but its last
// line is history.
const maxJournal = 1 << 20

// watch opens the journal and makes the cluster write it.
func watch(c *kfake.Cluster, dir string, log *slog.Logger) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, journalFile), os.O_CREATE|os.O_APPEND|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	j := &journal{dir: dir, log: log, file: f, staged: make(map[int64]staged)}
	// A control function that does not handle its request leaves it to the
	// cluster and stays.
	c.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		j.stage(r.(*kmsg.TxnOffsetCommitRequest))
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
		j.decide(r.(*kmsg.EndTxnRequest))
		return nil, nil, false
	})
	return j, nil
}

// stage remembers offsets that a transaction will commit. If kfake refuses them
// the producer learns it and aborts.
func (j *journal) stage(r *kmsg.TxnOffsetCommitRequest) {
	s := j.staged[r.ProducerID]
	if s.epoch != r.ProducerEpoch { // an earlier transaction, which was aborted
		s = staged{epoch: r.ProducerEpoch}
	}
	for _, t := range r.Topics {
		var id []byte
		if r.Version >= 6 { // KIP-1319
			id = t.TopicID[:]
		}
		for _, p := range t.Partitions {
			s.offsets = append(s.offsets, committedOffset{
				TopicID: id, Type: "commit", Group: r.Group, Topic: t.Topic, Partition: p.Partition,
				Offset: p.Offset, Epoch: p.LeaderEpoch, Metadata: p.Metadata,
			})
		}
	}
	j.staged[r.ProducerID] = s
}

// decide writes the line of a commit.
func (j *journal) decide(r *kmsg.EndTxnRequest) {
	s := j.staged[r.ProducerID]
	delete(j.staged, r.ProducerID)
	if !r.Commit {
		return
	}
	d := decision{PID: r.ProducerID, Epoch: r.ProducerEpoch, Version: r.Version}
	if s.epoch == r.ProducerEpoch {
		d.Offsets = s.offsets
	}
	info, err := os.Stat(filepath.Join(j.dir, pidsLogFile))
	if err == nil {
		d.PIDsLog = info.Size()
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = j.write(d)
	}
	if err != nil {
		j.log.Error("the journal of commits cannot be written: if the process is killed now, a transaction may be torn", "error", err)
	}
}

func (j *journal) write(d decision) error {
	line, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if j.size > maxJournal {
		if err := j.file.Truncate(0); err != nil {
			return err
		}
		j.size = 0
	}
	n, err := j.file.Write(append(line, '\n'))
	j.size += int64(n)
	return err
}

func (j *journal) close() error { return j.file.Close() }

// lastDecision reads the journal's last line; nil if there is none, or if it is
// cut short: kfake had not begun to apply that one.
func lastDecision(dir string) (*decision, error) {
	raw, err := os.ReadFile(filepath.Join(dir, journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(raw, []byte("\n")) {
		return nil, nil
	}
	line := raw[bytes.LastIndexByte(raw[:len(raw)-1], '\n')+1:]
	d := new(decision)
	if err := json.Unmarshal(line, d); err != nil {
		return nil, fmt.Errorf("%s: the last line is damaged: %w", journalFile, err)
	}
	return d, nil
}
