package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	return fmt.Errorf("%w; `provctl topics acls --role %s` prints what it needs", err, service)
}

// WarnOfHooks logs what keeps a service from seeing the hook topics. A right that
// is missing does not show otherwise: brokers do not tell of topics that one may
// not see.
func WarnOfHooks(ctx context.Context, c *Cluster, cfg Config) error {
	warning, err := c.HiddenHooks(ctx)
	if warning != "" && err == nil {
		cfg.Logger.Warn(warning)
	}
	return err
}

// HiddenHooks says what keeps the hook topics from being seen; "" if nothing does.
func (c *Cluster) HiddenHooks(ctx context.Context) (warning string, err error) {
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

// aclOperations are the bits of the operations in an answer about rights.
var aclOperations = map[string]kmsg.ACLOperation{
	"Read": kmsg.ACLOperationRead, "Write": kmsg.ACLOperationWrite, "Describe": kmsg.ACLOperationDescribe,
	"Create": kmsg.ACLOperationCreate, "DescribeConfigs": kmsg.ACLOperationDescribeConfigs,
}

// checkRights asks what the service may do with the topics that it will use, so
// that a right that is missing shows at the start, and not when the first record
// needs it: the state is read at a restart only, the dead letter written on a bad
// day.
func (c *Cluster) checkRights(ctx context.Context, service string) error {
	lacking, err := c.LackingTopicRights(ctx, topics.ACLs(service, c.Prefix))
	if err != nil {
		return err
	}
	var missing []string
	for _, a := range lacking {
		missing = append(missing, a.Operation+" on topic "+a.Name)
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("rights are missing: %s: %w", strings.Join(missing, ", "), kerr.TopicAuthorizationFailed)
}

// LackingTopicRights are those of the rights on whole topic names that these
// credentials have not. What the brokers do not tell is believed: rights on topics
// that do not exist, and any on a cluster without authorization.
func (c *Cluster) LackingTopicRights(ctx context.Context, list []topics.ACL) (lacking []topics.ACL, err error) {
	want := make(map[string][]topics.ACL)
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, a := range list {
		if a.Resource != "topic" || a.Prefixed {
			continue
		}
		if want[a.Name] == nil {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(a.Name)
			req.Topics = append(req.Topics, t)
		}
		want[a.Name] = append(want[a.Name], a)
	}
	if len(want) == 0 {
		return nil, nil
	}
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return nil, fmt.Errorf("ask the brokers for rights: %w", err)
	}
	for _, t := range resp.Topics {
		switch {
		case t.Topic == nil:
		case t.ErrorCode == kerr.TopicAuthorizationFailed.Code:
			lacking = append(lacking, want[*t.Topic]...)
		case t.ErrorCode != 0 || t.AuthorizedOperations == math.MinInt32 || t.AuthorizedOperations == 0:
			// other errors are told elsewhere
		default:
			for _, a := range want[*t.Topic] {
				if t.AuthorizedOperations&(1<<aclOperations[a.Operation]) == 0 {
					lacking = append(lacking, a)
				}
			}
		}
	}
	return lacking, nil
}
