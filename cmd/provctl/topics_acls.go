package main

import (
	"fmt"
	"strings"

	"provstream/internal/kafka"
	"provstream/internal/topics"
	"provstream/internal/topology"
)

type topicsACLsCmd struct {
	kafka.Flags `embed:""`
	Role        string `help:"agent, ingest, aggregator, signer, reader (a SIEM), auditor, operator or canary." enum:"agent,ingest,aggregator,signer,reader,auditor,operator,canary" required:""`
	Principal   string `help:"Who gets the rights, e.g. User:ingest; with --apply and without, only printed as a placeholder." placeholder:"User:NAME"`
	Apply       bool   `help:"Grant the rights on the cluster. What is granted already stays."`
	Check       bool   `help:"Ask the cluster which of the rights are missing; status 1 if any is."`
}

func (c *topicsACLsCmd) Help() string {
	return example("The least that a role needs on a cluster with ACLs: one right a line, as kafka-acls.sh takes it. Groups and transactional ids are the "+
		"services' defaults (--group and --instance of theirs change them: grant those instead).",
		"provctl topics acls --role ingest --principal User:ingest",
		"provctl topics acls --role signer --principal User:signer --apply --brokers kafka:9092",
		"provctl topics acls --role aggregator --principal User:aggregator --check --json")
}

func (c *topicsACLsCmd) Run(g *globals) error {
	list := topics.ACLs(c.Role, c.Prefix)
	principal := c.Principal
	if principal == "" {
		if c.Apply || c.Check {
			return fmt.Errorf("--principal: name who gets the rights, e.g. User:%s", c.Role)
		}
		principal = "User:" + c.Role
	}
	if kind, name, ok := strings.Cut(principal, ":"); !ok || kind == "" || name == "" {
		return fmt.Errorf("--principal: %q is not like User:%s", principal, c.Role)
	}
	missing := []topics.ACL{}
	if c.Apply || c.Check {
		adm, done, err := admin(c.Flags)
		if err != nil {
			return err
		}
		defer done()
		if c.Apply {
			if err := topology.GrantACLs(g.ctx, adm, principal, list); err != nil {
				return err
			}
		}
		if c.Check {
			if missing, err = topology.MissingACLs(g.ctx, adm, principal, list); err != nil {
				return err
			}
			list = nonNil(missing)
		}
	}
	if err := c.print(g, principal, list); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d rights of %s are missing: %w", len(missing), principal, errDoesNotHold)
	}
	return nil
}

func (c *topicsACLsCmd) print(g *globals, principal string, list []topics.ACL) error {
	if g.json {
		return g.printJSON(map[string]any{"role": c.Role, "principal": principal, "applied": c.Apply, "missing": c.Check, "acls": list})
	}
	switch {
	case c.Check && len(list) == 0:
		g.printf("nothing is missing\n")
	case c.Apply && !c.Check:
		for _, a := range list {
			g.printf("granted %s %s on %s %s%s\n", principal, a.Operation, a.Resource, a.Name, map[bool]string{true: "*"}[a.Prefixed])
		}
	default:
		for _, a := range list {
			g.printf("%s   # %s\n", topology.ACLCommand(strings.Join(c.Brokers, ","), principal, a), a.Why)
		}
	}
	return nil
}
