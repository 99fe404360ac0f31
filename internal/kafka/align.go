package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// stalled is how long the partition that holds the others back may bring
// nothing before they go on without it.
const stalled = 2 * time.Second

// align keeps the partitions of a backlog side by side in the time of their
// records. A broker hands out as many bytes of a sparse partition as of a
// dense one, so a sparse topic would be read to its end while a dense one has
// hardly begun: what joins the two would have to hold everything between. Of
// the partitions that have more to read, those that are ahead of the last by
// more than LoopSpec.Align pause until it comes near. In what is read live
// nobody is ahead.
func (l *Loop) align(now time.Time) {
	if l.spec.Align == 0 {
		return
	}
	var last *worker
	for key, w := range l.workers {
		if w.given == 0 {
			w.readTo = l.backlogOf(key)
		}
		if w.behind() && (last == nil || w.givenAt < last.givenAt) {
			last = w
		}
	}
	if last != l.last || last != nil && last.given != l.lastGiven {
		l.last, l.lastMoved = last, now
		if last != nil {
			l.lastGiven = last.given
		}
	}
	free := last == nil || now.Sub(l.lastMoved) > stalled
	pause, resume := make(map[string][]int32), make(map[string][]int32)
	for key, w := range l.workers {
		lead := l.spec.Align.Milliseconds()
		if w.held {
			lead /= 2
		}
		hold := !free && w.behind() && w.givenAt-last.givenAt > lead
		if hold && !w.held {
			pause[key.Topic] = append(pause[key.Topic], key.Partition)
		} else if w.held && !hold {
			resume[key.Topic] = append(resume[key.Topic], key.Partition)
		}
		w.held = hold
	}
	if len(pause) != 0 {
		l.session.client().PauseFetchPartitions(pause)
	}
	if len(resume) != 0 {
		l.session.client().ResumeFetchPartitions(resume)
	}
}

// behind reports whether the partition had more to read when it was last
// fetched, or when it was assigned.
func (w *worker) behind() bool { return w.given < w.readTo }

// findBacklog notes which partitions of these topics have something to read
// before the first of it comes. Without an answer nothing waits for them.
func (l *Loop) findBacklog(committed kadm.OffsetResponses, topics []string) {
	if l.spec.Align == 0 {
		return
	}
	ends, err := l.cluster.Admin.ListCommittedOffsets(l.life, topics...)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ends.Each(func(e kadm.ListedOffset) {
		at := int64(0)
		if o, ok := committed.Lookup(e.Topic, e.Partition); ok {
			at = max(0, o.At)
		}
		delete(l.backlog, Partition{e.Topic, e.Partition})
		if e.Err == nil && e.Offset > at {
			l.backlog[Partition{e.Topic, e.Partition}] = e.Offset
		}
	})
}

func (l *Loop) backlogOf(key Partition) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.backlog[key]
}
