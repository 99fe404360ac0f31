package kafkatest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Failure is a way in which a request fails.
type Failure string

// Two in which nothing has happened, and two in which it has.
const (
	Refused     Failure = "refused"     // the answer is an error, and nothing happened
	Unsent      Failure = "unsent"      // the connection ends before the broker has the request
	Misreported Failure = "misreported" // it happened, and the answer is an error
	Unanswered  Failure = "unanswered"  // it happened, and the connection ends before the answer
)

// Failures are all of them.
func Failures() []Failure { return []Failure{Refused, Unsent, Misreported, Unanswered} }

// Fail lets requests of one kind fail; kfake only. which is asked about each
// request of the kind, on kfake's goroutine. hits tells how many have failed.
//
// kfake's own faults reject a request before the broker acts on it, but for a few
// kinds and one error, EndTxn not among them. So what is to have happened is done
// first, by a second connection, while the request waits.
func (c *Cluster) Fail(t testing.TB, key kmsg.Key, how Failure, which func(kmsg.Request) bool) (hits func() int) {
	t.Helper()
	if how == Refused {
		entities := kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.UnknownServerError, Count: -1, When: which}
		if key == kmsg.EndTxn || key == kmsg.InitProducerID || key == kmsg.AddOffsetsToTxn || key == kmsg.Heartbeat {
			entities.TopLevel = true
		}
		return c.Fake.Fault(entities).Hits
	}
	second := c.Client(t)
	var failed, passing atomic.Int64
	c.Fake.ControlKey(int16(key), func(req kmsg.Request) (resp kmsg.Response, err error, handled bool) {
		c.Fake.KeepControl()
		if passing.Load() > 0 || !which(req) {
			return nil, nil, false
		}
		failed.Add(1)
		if how != Unsent {
			node := c.Fake.CurrentNode()
			passing.Add(1)
			c.Fake.SleepControl(func() { resp, err = second.Broker(int(node)).Request(context.Background(), req) })
			passing.Add(-1)
		}
		if how == Misreported && err == nil {
			misreport(resp)
			return resp, nil, true
		}
		return nil, errors.New("the connection ends here"), true
	})
	return func() int { return int(failed.Load()) }
}

// misreport puts UNKNOWN_SERVER_ERROR in the place of what a response tells.
func misreport(resp kmsg.Response) {
	code := kerr.UnknownServerError.Code
	switch r := resp.(type) {
	case *kmsg.EndTxnResponse:
		r.ErrorCode = code
	case *kmsg.InitProducerIDResponse:
		r.ErrorCode = code
	case *kmsg.AddOffsetsToTxnResponse:
		r.ErrorCode = code
	case *kmsg.HeartbeatResponse:
		r.ErrorCode = code
	case *kmsg.ProduceResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				r.Topics[i].Partitions[j].ErrorCode = code
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				r.Topics[i].Partitions[j].ErrorCode = code
			}
		}
	}
}
