package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/topics"
)

// ACLCommand is the line of kafka-acls.sh that grants a right.
func ACLCommand(brokers, principal string, a topics.ACL) string {
	pattern := ""
	if a.Prefixed {
		pattern = " --resource-pattern-type prefixed"
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal %s --operation %s --%s %s%s", brokers, principal, a.Operation, a.Resource, a.Name, pattern)
}

// GrantACLs gives a principal the rights; those that it has already stay.
func GrantACLs(ctx context.Context, adm *kadm.Client, principal string, list []topics.ACL) error {
	var errs []error
	for _, a := range list {
		b, err := builder(a)
		if err != nil {
			return err
		}
		results, err := adm.CreateACLs(ctx, b.Allow(principal).AllowHosts("*"))
		if err != nil {
			return fmt.Errorf("create ACLs: %w", err)
		}
		for _, r := range results {
			if r.Err != nil {
				errs = append(errs, fmt.Errorf("%s %s on %s %s: %w: the principal that applies ACLs needs Alter on the cluster, and the brokers an authorizer",
					principal, a.Operation, a.Resource, a.Name, r.Err))
			}
		}
	}
	return errors.Join(errs...)
}

// RevokeACL takes one right back.
func RevokeACL(ctx context.Context, adm *kadm.Client, principal string, a topics.ACL) error {
	b, err := builder(a)
	if err != nil {
		return err
	}
	results, err := adm.DeleteACLs(ctx, b.Allow(principal).AllowHosts("*"))
	if err != nil {
		return fmt.Errorf("delete ACLs: %w", err)
	}
	for _, r := range results {
		if r.Err != nil {
			return fmt.Errorf("delete ACLs: %w", r.Err)
		}
	}
	return nil
}

// MissingACLs are the rights of a list that a principal has not been granted.
// Rights that follow from wider ones (another pattern, another principal, super
// users) are not seen.
func MissingACLs(ctx context.Context, adm *kadm.Client, principal string, list []topics.ACL) ([]topics.ACL, error) {
	var missing []topics.ACL
	for _, a := range list {
		b, err := builder(a)
		if err != nil {
			return nil, err
		}
		results, err := adm.DescribeACLs(ctx, b.Allow(principal).AllowHosts())
		if err != nil {
			return nil, fmt.Errorf("describe ACLs: %w", err)
		}
		found := false
		for _, r := range results {
			if r.Err != nil {
				return nil, fmt.Errorf("describe ACLs: %w", r.Err)
			}
			found = found || len(r.Described) != 0
		}
		if !found {
			missing = append(missing, a)
		}
	}
	return missing, nil
}

func builder(a topics.ACL) (*kadm.ACLBuilder, error) {
	op, err := kmsg.ParseACLOperation(strings.ToUpper(snake(a.Operation)))
	if err != nil {
		return nil, fmt.Errorf("operation %s: %w", a.Operation, err)
	}
	b := kadm.NewACLs().Operations(op)
	switch a.Resource {
	case "topic":
		b = b.Topics(a.Name)
	case "group":
		b = b.Groups(a.Name)
	case "transactional-id":
		b = b.TransactionalIDs(a.Name)
	default:
		return nil, fmt.Errorf("no resource is called %q", a.Resource)
	}
	if a.Prefixed {
		return b.ResourcePatternType(kadm.ACLPatternPrefixed), nil
	}
	return b.ResourcePatternType(kadm.ACLPatternLiteral), nil
}

// snake writes DescribeConfigs as Describe_Configs.
func snake(s string) string {
	var b strings.Builder
	for i, c := range s {
		if i > 0 && c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return b.String()
}
