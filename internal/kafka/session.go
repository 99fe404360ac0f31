package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// session is what the loop needs of a client: a GroupTransactSession, or the
// same without transactions.
type session interface {
	client() *kgo.Client
	poll(ctx context.Context, n int) kgo.Fetches
	begin() error
	produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))
	// end commits or aborts. false without an error is no fault: the group
	// rebalanced, or the coordinator asked for an abort.
	end(ctx context.Context, commit bool) (committed bool, err error)
	allowRebalance()
	close()
}

func newSession(plain bool, opts []kgo.Opt) (session, error) {
	if plain {
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			return nil, err
		}
		return plainSession{cl}, nil
	}
	s, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		return nil, err
	}
	return txnSession{s}, nil
}

type txnSession struct{ s *kgo.GroupTransactSession }

func (t txnSession) client() *kgo.Client { return t.s.Client() }
func (t txnSession) poll(ctx context.Context, n int) kgo.Fetches {
	return t.s.PollRecords(ctx, n)
}
func (t txnSession) begin() error { return t.s.Begin() }
func (t txnSession) produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	t.s.Produce(ctx, r, promise)
}
func (t txnSession) end(ctx context.Context, commit bool) (bool, error) {
	return t.s.End(ctx, kgo.TransactionEndTry(commit))
}
func (t txnSession) allowRebalance() { t.s.AllowRebalance() }
func (t txnSession) close()          { t.s.CloseAllowingRebalance() }

// plainSession produces idempotently and commits the offsets afterwards. A
// crash between the two repeats output.
type plainSession struct{ cl *kgo.Client }

func (p plainSession) client() *kgo.Client { return p.cl }
func (p plainSession) poll(ctx context.Context, n int) kgo.Fetches {
	return p.cl.PollRecords(ctx, n)
}
func (p plainSession) begin() error { return nil }
func (p plainSession) produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	p.cl.Produce(ctx, r, promise)
}
func (p plainSession) end(ctx context.Context, commit bool) (bool, error) {
	if err := p.cl.Flush(ctx); err != nil {
		return false, err
	}
	if !commit {
		return false, nil
	}
	if err := p.cl.CommitUncommittedOffsets(ctx); err != nil {
		return false, fmt.Errorf("commit offsets: %w", err)
	}
	return true, nil
}
func (p plainSession) allowRebalance() { p.cl.AllowRebalance() }
func (p plainSession) close()          { p.cl.CloseAllowingRebalance() }

// leaveGroup removes a static member.
func (c *Cluster) leaveGroup(ctx context.Context, group, instance string) error {
	resp, err := c.Admin.LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs(instance).Reason("graceful stop"))
	if err != nil {
		return err
	}
	return resp.Error()
}
