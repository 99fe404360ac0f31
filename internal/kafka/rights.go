package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"provstream/internal/topics"
)

// Refused tells whether the brokers refused something for want of rights.
func Refused(err error) bool {
	for _, e := range []*kerr.Error{
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ExplainRights adds to an error of a missing right where the rights stand.
func ExplainRights(err error, service string) error {
	if !Refused(err) || strings.Contains(err.Error(), "topics acls") {
		return err
	}
	return fmt.Errorf("%w; `provctl topics acls --role %s` prints what this service needs", err, service)
}

// WarnOfHooks logs what keeps a service from seeing the hook topics. A right that
// is missing does not show otherwise: brokers do not tell of topics that one may
// not see.
func WarnOfHooks(ctx context.Context, c *Cluster, cfg Config) error {
	warning, err := c.checkHooks(ctx)
	if warning != "" && err == nil {
		cfg.Logger.Warn(warning)
	}
	return err
}

func (c *Cluster) checkHooks(ctx context.Context) (warning string, err error) {
	md, err := c.metadata(ctx, c.Prefix+topics.Decisions)
	if err != nil {
		return "", err
	}
	for _, t := range md.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); Refused(err) {
			return "", fmt.Errorf("topic %s: %w", c.Prefix+topics.Decisions, err)
		}
	}
	names, err := c.HookTopics(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if n != c.Prefix+topics.Decisions {
			return "", nil
		}
	}
	return fmt.Sprintf("no topic %s%s* is to be seen: either none was created yet, or authorization hides them (`provctl topics acls` prints what this service needs)",
		c.Prefix, topics.HookPrefix), nil
}
