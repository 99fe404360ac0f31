package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/kindgi"
	"provstream/verify"
)

type keysCmd struct {
	New        keysNewCmd        `cmd:"" help:"Make the keys of a deployment, a tenant's key, or the next key of either."`
	Init       keysInitCmd       `cmd:"" help:"Make the keys of a deployment that are missing, and write the public ones as a JWK Set: for a first start without people."`
	List       keysListCmd       `cmd:"" help:"List the keys of a directory or those published on the cluster."`
	Publish    keysPublishCmd    `cmd:"" help:"Publish the public keys of a directory on prov.keys."`
	Retire     keysRetireCmd     `cmd:"" help:"Mark a key as no longer used; what it has signed stays good."`
	Compromise keysCompromiseCmd `cmd:"" help:"Mark a key as leaked: good only for what was logged before."`
	JWKS       keysJWKSCmd       `cmd:"" name:"jwks" help:"Print public keys as a JWK Set, to be pinned."`
}

// keyDir is the flag of the commands that work on a key directory.
type keyDir struct {
	Dir string `help:"Key directory, the signer's --keys." default:"keys" placeholder:"DIR"`
}

type keysNewCmd struct {
	kafka.Flags `embed:""`
	keyDir      `embed:""`
	Use         string `help:"dag, log, all (both keys that a deployment needs), or export (signs the envelopes of provctl export)." enum:"dag,log,all,export" default:"all"`
	Tenant      string `help:"Make a DAG key for this tenant alone."`
	Rotate      bool   `help:"Replace the key that is there. A signer that watches the directory goes over to the new one within seconds."`
	Publish     bool   `help:"With --rotate: publish the new key on prov.keys before it is put in place, valid from the present size of each log on."`
	Deployment  string `help:"The deployment, the first part of the logs' origins." default:"provstream"`
}

func (c *keysNewCmd) Help() string {
	return example("Keys are Ed25519 in PKCS#8 PEM files of mode 0600. DAG keys sign DAGs, the log key signs the heads of the logs; the key id is the RFC 7638 "+
		"thumbprint. Give the public keys (provctl keys jwks) to those who verify by a way that they trust.",
		"provctl keys new --dir keys",
		"provctl keys new --dir keys --tenant acme",
		"provctl keys new --dir keys --use log --rotate --publish --brokers kafka:9092")
}

func (c *keysNewCmd) Run(g *globals) error {
	if c.Use == "export" {
		return c.export(g)
	}
	uses := map[string][]verify.Use{"dag": {verify.UseDAG}, "log": {verify.UseLog}, "all": {verify.UseDAG, verify.UseLog}}[c.Use]
	if c.Tenant != "" {
		if c.Use == "log" {
			return errors.New("keys new: the log key belongs to the deployment, not to a tenant")
		}
		uses = []verify.Use{verify.UseDAG}
	}
	if c.Publish && !c.Rotate {
		return errors.New("keys new: --publish is for --rotate; publish first keys with provctl keys publish")
	}
	var made []verify.Key
	for _, use := range uses {
		k, err := c.make(g, use)
		if errors.Is(err, keys.ErrExists) && c.Use == "all" && c.Tenant == "" {
			continue // the other one may be missing
		}
		if err != nil {
			return fmt.Errorf("keys new: %w", err)
		}
		made = append(made, k)
	}
	if len(made) == 0 {
		return fmt.Errorf("keys new: %s has both keys already: replace one with --use and --rotate", c.Dir)
	}
	return g.printKeys(made, "made")
}

func (c *keysNewCmd) export(g *globals) error {
	if c.Rotate || c.Tenant != "" {
		return errors.New("keys new: an export key has no tenant and is not rotated")
	}
	k, err := keys.CreateExport(c.Dir)
	if err != nil {
		return fmt.Errorf("keys new: %w", err)
	}
	id := kindgi.ExportKeyID(k.Public)
	if g.json {
		return g.printJSON(map[string]any{"export_key_id": id})
	}
	g.printf("%s  export key  made\n", id)
	return nil
}

func (c *keysNewCmd) make(g *globals, use verify.Use) (verify.Key, error) {
	if !c.Rotate {
		k, err := keys.Create(c.Dir, use, c.Tenant)
		if err != nil {
			return verify.Key{}, err
		}
		return k.Key, nil
	}
	next, err := keys.Prepare(c.Dir, use, c.Tenant)
	if err != nil {
		return verify.Key{}, err
	}
	if c.Publish {
		p, err := openPublished(g.ctx, c.Flags, c.Deployment)
		if err != nil {
			return verify.Key{}, err
		}
		defer p.close()
		if next.From, err = p.sizes(g.ctx, use, c.Dir); err != nil {
			return verify.Key{}, err
		}
		if err := p.publish(g.ctx, []verify.Key{next.Key}); err != nil {
			return verify.Key{}, err
		}
	}
	old, err := keys.Rotate(c.Dir, next)
	if err != nil {
		return verify.Key{}, err
	}
	if !g.json {
		g.printf("replaced %s: when the signer has taken over the new key, run provctl keys retire %s\n", old.ID, old.ID)
	}
	return next.Key, nil
}

type keysListCmd struct {
	kafka.Flags `embed:""`
	keyDir      `embed:""`
	Topic       bool `help:"List what is published on prov.keys instead of a directory."`
}

func (c *keysListCmd) Help() string {
	return example("Shows id, use, tenant and status of each key, and the log indices that bound it.",
		"provctl keys list --dir keys", "provctl keys list --topic --brokers kafka:9092 --json")
}

func (c *keysListCmd) Run(g *globals) error {
	list, err := publicKeys(g, c.Flags, c.Dir, c.Topic)
	if err != nil {
		return fmt.Errorf("keys list: %w", err)
	}
	return g.printKeys(list, "")
}

// publicKeys are those of a directory or of prov.keys.
func publicKeys(g *globals, f kafka.Flags, dir string, topic bool) ([]verify.Key, error) {
	if topic {
		p, err := openPublished(g.ctx, f, "")
		if err != nil {
			return nil, err
		}
		defer p.close()
		return p.read(g.ctx)
	}
	entries, err := keys.List(dir)
	if err != nil {
		return nil, err
	}
	var list []verify.Key
	for _, e := range entries {
		list = append(list, e.Key)
	}
	return list, nil
}

type keysPublishCmd struct {
	kafka.Flags `embed:""`
	keyDir      `embed:""`
}

func (c *keysPublishCmd) Help() string {
	return example("Writes the public keys of the directory to prov.keys, where consumers find them. Publishing is discovery and no trust: who verifies pins keys. "+
		"A key that is published with the same content is left alone.",
		"provctl keys publish --dir keys --brokers kafka:9092")
}

func (c *keysPublishCmd) Run(g *globals) error {
	list, err := publicKeys(g, c.Flags, c.Dir, false)
	if err != nil {
		return fmt.Errorf("keys publish: %w", err)
	}
	p, err := openPublished(g.ctx, c.Flags, "")
	if err != nil {
		return fmt.Errorf("keys publish: %w", err)
	}
	defer p.close()
	before, err := p.read(g.ctx)
	if err != nil {
		return fmt.Errorf("keys publish: %w", err)
	}
	var changed []verify.Key
	for _, k := range list {
		i := slices.IndexFunc(before, func(b verify.Key) bool { return b.ID == k.ID })
		if i >= 0 {
			k = mergePublished(k, before[i])
			if string(k.JWK()) == string(before[i].JWK()) {
				continue
			}
		}
		changed = append(changed, k)
	}
	if err := p.publish(g.ctx, changed); err != nil {
		return fmt.Errorf("keys publish: %w", err)
	}
	if len(changed) == 0 && !g.json {
		g.printf("nothing to do: prov.keys has them all\n")
		return nil
	}
	return g.printKeys(changed, "published")
}

// mergePublished keeps what is published of a key's life and the directory
// does not know; the worse status wins.
func mergePublished(k, published verify.Key) verify.Key {
	if k.From == nil {
		k.From = published.From
	}
	rank := func(s verify.Status) int {
		return slices.Index([]verify.Status{verify.StatusActive, verify.StatusRetired, verify.StatusCompromised}, s)
	}
	if rank(published.Status) > rank(k.Status) {
		k.Status = published.Status
	}
	to := map[string]int64{}
	for _, m := range []map[string]int64{k.To, published.To} {
		for origin, n := range m {
			if before, ok := to[origin]; !ok || n < before {
				to[origin] = n
			}
		}
	}
	k.To = to
	return k
}

// ending are the flags that say until when a key was good.
type ending struct {
	kafka.Flags `embed:""`
	keyDir      `embed:""`
	KID         string   `arg:"" name:"kid" help:"Id of the key."`
	At          []string `help:"First log index that the key is not good for, as ORIGIN=INDEX, for each log. Default: the present size of each log on the cluster." placeholder:"ORIGIN=INDEX" sep:"none"`
	Deployment  string   `help:"The deployment, the first part of the logs' origins." default:"provstream"`
	NoPublish   bool     `help:"Change the directory alone, and publish later."`
}

// run marks the key in the directory and on prov.keys.
func (c *ending) run(g *globals, status verify.Status) error {
	to := map[string]int64{}
	for _, at := range c.At {
		i := strings.LastIndexByte(at, '=')
		n, err := strconv.ParseInt(at[max(i+1, 0):], 10, 64)
		if i <= 0 || err != nil || n < 0 {
			return fmt.Errorf("--at %q: want ORIGIN=INDEX, such as %s/prov.dags/0=1042", at, c.Deployment)
		}
		to[at[:i]] = n
	}
	var p *published
	var err error
	if !c.NoPublish || len(to) == 0 {
		if p, err = openPublished(g.ctx, c.Flags, c.Deployment); err != nil {
			return err
		}
		defer p.close()
	}
	if len(to) == 0 {
		use, err := c.use()
		if err != nil {
			return err
		}
		if to, err = p.sizes(g.ctx, use, c.Dir); err != nil {
			return err
		}
	}
	k, err := keys.SetStatus(c.Dir, c.KID, status, to)
	if err != nil {
		return err
	}
	if !c.NoPublish {
		if err := p.publish(g.ctx, []verify.Key{k}); err != nil {
			return fmt.Errorf("the directory is changed, prov.keys is not: run provctl keys publish: %w", err)
		}
	}
	return g.printKeys([]verify.Key{k}, string(status))
}

func (c *ending) use() (verify.Use, error) {
	list, err := keys.List(c.Dir)
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if e.ID == c.KID {
			return e.Use, nil
		}
	}
	return "", fmt.Errorf("key %s is not in %s", c.KID, c.Dir)
}

type keysRetireCmd struct {
	ending `embed:""`
}

func (c *keysRetireCmd) Help() string {
	return example("Run it when the signer has gone over to the next key. What the key has signed stays good; what shows up with it at a later index of a log does not.",
		"provctl keys retire kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k --dir keys --brokers kafka:9092")
}

func (c *keysRetireCmd) Run(g *globals) error {
	if err := c.run(g, verify.StatusRetired); err != nil {
		return fmt.Errorf("keys retire: %w", err)
	}
	return nil
}

type keysCompromiseCmd struct {
	ending `embed:""`
}

func (c *keysCompromiseCmd) Help() string {
	return example("Replace the key first (keys new --rotate), so that nothing more is signed with it. A DAG that it signed is believed only with a proof that it "+
		"stands in the log before the given index; without --at that is everything logged until now.",
		"provctl keys compromise kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k --at provstream/prov.dags/0=1042 --at provstream/prov.dags/1=998")
}

func (c *keysCompromiseCmd) Run(g *globals) error {
	if err := c.run(g, verify.StatusCompromised); err != nil {
		return fmt.Errorf("keys compromise: %w", err)
	}
	return nil
}

type keysJWKSCmd struct {
	kafka.Flags `embed:""`
	keyDir      `embed:""`
	Topic       bool `help:"Take what is published on prov.keys: for a look, not for trust."`
}

func (c *keysJWKSCmd) Help() string {
	return example("Prints public keys with their status and the log indices that bound them, for --jwks of provctl verify and for verifiers in other languages.",
		"provctl keys jwks --dir keys > pinned.json")
}

func (c *keysJWKSCmd) Run(g *globals) error {
	list, err := publicKeys(g, c.Flags, c.Dir, c.Topic)
	if err != nil {
		return fmt.Errorf("keys jwks: %w", err)
	}
	if c.Topic {
		fmt.Fprintln(g.stderr, "provctl: these keys come from the cluster that they are to vouch for: compare their ids with the operator's before you pin them")
	}
	g.printf("%s\n", verify.JWKS(list))
	return nil
}

// keyDoc is a key in the output of --json.
type keyDoc struct {
	KID    string           `json:"kid"`
	Use    verify.Use       `json:"use"`
	Tenant string           `json:"tenant,omitempty"`
	Status verify.Status    `json:"status"`
	From   map[string]int64 `json:"from,omitempty"`
	To     map[string]int64 `json:"to,omitempty"`
}

// printKeys prints keys, each with what was done to it.
func (g *globals) printKeys(list []verify.Key, done string) error {
	if g.json {
		docs := []keyDoc{}
		for _, k := range list {
			docs = append(docs, keyDoc{k.ID, k.Use, k.Tenant, k.Status, k.From, k.To})
		}
		return g.printJSON(map[string]any{"keys": docs})
	}
	for _, k := range list {
		use := map[verify.Use]string{verify.UseDAG: "DAG key", verify.UseLog: "log key"}[k.Use]
		owner := ""
		if k.Tenant != "" {
			owner = " of tenant " + k.Tenant
		}
		what := string(k.Status)
		if done != "" {
			what = done
		}
		g.printf("%s  %s%s  %s\n", k.ID, use, owner, what)
		if done == "" {
			for _, origin := range slices.Sorted(maps.Keys(bounded(k))) {
				g.printf("    %s: %s\n", origin, bounds(k, origin))
			}
		}
	}
	return nil
}

func bounded(k verify.Key) map[string]bool {
	m := map[string]bool{}
	for o := range k.From {
		m[o] = true
	}
	for o := range k.To {
		m[o] = true
	}
	return m
}

func bounds(k verify.Key, origin string) string {
	from, to := "0", "…"
	if n, ok := k.From[origin]; ok {
		from = strconv.FormatInt(n, 10)
	}
	if n, ok := k.To[origin]; ok {
		to = strconv.FormatInt(n, 10)
	}
	return "indices " + from + " to before " + to
}
