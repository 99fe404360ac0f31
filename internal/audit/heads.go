package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"provstream/internal/evidence"
	"provstream/verify"
)

// headStream reads the records of prov.checkpoints beside the DAGs, a few
// ahead: partition by partition as the DAGs are, so that nothing has to be
// kept.
type headStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	items  chan headItem
	wait   sync.WaitGroup
	front  *headItem
	end    bool
}

type headItem struct {
	record *Record
	head   verify.Checkpoint
	err    error
}

func openHeads(ctx context.Context, cfg *Config) *headStream {
	ctx, cancel := context.WithCancel(ctx)
	h := &headStream{ctx: ctx, cancel: cancel, items: make(chan headItem, 64)}
	h.wait.Go(func() {
		defer close(h.items)
		send := func(i headItem) error {
			select {
			case h.items <- i:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := cfg.Heads(ctx, func(i Item) error {
			r := i.record()
			head, err := cfg.Keys.Checkpoint(r.Value)
			return send(headItem{record: r, head: head, err: err})
		})
		if err != nil && ctx.Err() == nil {
			send(headItem{err: fmt.Errorf("checkpoints: %w", err)})
		}
	})
	return h
}

func (h *headStream) close() {
	h.cancel()
	for range h.items { // let the reader end
	}
	h.wait.Wait()
}

// peek returns the next head without taking it, nil at the end.
func (h *headStream) peek() *headItem {
	if h.front == nil && !h.end {
		i, ok := <-h.items
		if !ok {
			h.end = true
			return nil
		}
		h.front = &i
	}
	return h.front
}

// nextHead takes the next head of the stream that belongs to partition p or to
// one before it; nil when there is none.
func (s *sequence) nextHead(partition int32, all bool) (*headItem, error) {
	i := s.heads.peek()
	if i == nil {
		return nil, s.heads.ctx.Err() // an end that is none proves nothing
	}
	if i.record == nil {
		return nil, i.err // the stream itself failed
	}
	if !all && i.record.Placed && i.record.Partition > partition {
		return nil, nil
	}
	s.heads.front = nil
	if i.err != nil {
		return nil, finding(i.record, i.err)
	}
	s.report.Heads++
	if i.record.Placed && !strings.HasSuffix(i.head.Origin, fmt.Sprintf("/%d", i.record.Partition)) {
		return nil, finding(i.record, s.fail(verify.WrongOrigin, i.head.Origin, "a head of %s stands in partition %d", i.head.Origin, i.record.Partition))
	}
	return i, nil
}

// useHead takes a head into its chain and, if it is of a log of DAGs, into
// the log.
func (s *sequence) useHead(i *headItem) error {
	origin := i.head.Origin
	st := s.logs[origin]
	if st == nil {
		_, topic := splitOrigin(origin)
		var err error
		if st, err = s.newLog(origin, place{topic, i.record.Partition}); err != nil {
			return finding(i.record, err)
		}
	}
	if st.chain == nil {
		st.chain = verify.NewHeads(origin)
	}
	err := st.chain.Next(i.head, i.record.Headers[evidence.HeaderConsistency], i.record.Headers[evidence.HeaderFrontier])
	if err == nil && st.log != nil {
		err = st.log.Head(i.head)
	}
	if err == nil {
		err = s.meetSince(i.head)
	}
	if err != nil {
		return finding(i.record, err)
	}
	if i.head.Size >= st.newest.Size {
		st.newest, st.newNote = i.head, i.record.Value
	}
	return nil
}

// headsAhead sees to it that the log knows a head that its leaves have not
// reached, if there is one.
func (s *sequence) headsAhead(st *logState) error {
	for st.chain == nil || st.chain.Last().Size <= st.log.Size() {
		i, err := s.nextHead(st.place.partition, false)
		if i == nil || err != nil {
			if st.chain == nil {
				st.chain = verify.NewHeads(st.log.Origin())
			}
			return err
		}
		if err := s.useHead(i); err != nil {
			return err
		}
	}
	return nil
}

// headsBefore takes all heads of partitions before p: those partitions have
// no DAGs left to come.
func (s *sequence) headsBefore(p place) error {
	for {
		i, err := s.nextHead(p.partition-1, false)
		if err != nil {
			return err
		}
		if i == nil {
			return nil
		}
		if err := s.useAlone(i); err != nil {
			return err
		}
	}
}

// headsRest takes what is left of the stream at the end.
func (s *sequence) headsRest() error {
	for {
		i, err := s.nextHead(0, true)
		if i == nil || err != nil {
			return err
		}
		if err := s.useAlone(i); err != nil {
			return err
		}
	}
}

// useAlone takes a head behind the last DAG of its partition: it may not cover
// more than there was.
func (s *sequence) useAlone(i *headItem) error {
	if err := s.useHead(i); err != nil {
		return err
	}
	st := s.logs[i.head.Origin]
	if st.log == nil {
		return nil
	}
	if err := st.log.Close(); err != nil {
		var e *verify.Error
		if errors.As(err, &e) {
			return finding(i.record, e)
		}
		return err
	}
	return nil
}
