package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"provstream/verify"
)

// pins are the flags that name the keys to trust. There is no other source of
// trust: prov.keys is discovery only.
type pins struct {
	Key    []string `help:"Public DAG key to trust: a PEM file or a JWK, for the whole deployment or, as TENANT=FILE, for one tenant. May be repeated." placeholder:"[TENANT=]FILE" sep:"none"`
	LogKey []string `help:"Public log key to trust: a PEM file or a JWK. May be repeated." placeholder:"FILE" sep:"none"`
	JWKS   []string `name:"jwks" help:"JWK Set of public keys to trust, such as provctl keys jwks prints. May be repeated." placeholder:"FILE" sep:"none"`
}

// load reads the keys.
func (p *pins) load() (*verify.Keys, error) {
	var keys []verify.Key
	var errs []error
	for _, f := range p.JWKS {
		ks, err := readJWKS(f)
		keys, errs = append(keys, ks...), append(errs, err)
	}
	for _, f := range p.Key {
		tenant, path := "", f
		if t, rest, ok := strings.Cut(f, "="); ok {
			if _, err := os.Stat(f); err != nil { // a file name may have an equals sign
				tenant, path = t, rest
			}
		}
		ks, err := readKey(path, verify.UseDAG, tenant)
		keys, errs = append(keys, ks...), append(errs, err)
	}
	for _, f := range p.LogKey {
		ks, err := readKey(f, verify.UseLog, "")
		keys, errs = append(keys, ks...), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("no key is pinned: give --jwks or --key with public keys that you have from the operator by a way that you trust; " +
			"prov.keys on the cluster is discovery, not trust")
	}
	return verify.NewKeys(keys...)
}

func readJWKS(path string) ([]verify.Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--jwks: %w", err)
	}
	keys, err := verify.ParseJWKS(text)
	if err != nil {
		return nil, fmt.Errorf("--jwks %s: %w", path, err)
	}
	return keys, nil
}

// readKey reads a PEM file or a JWK.
func readKey(path string, use verify.Use, tenant string) ([]verify.Key, error) {
	flag := map[verify.Use]string{verify.UseDAG: "--key", verify.UseLog: "--log-key"}[use]
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		k, err := verify.ParseJWK(text)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, path, err)
		}
		if k.Use != use {
			return nil, fmt.Errorf("%s %s: the JWK's use is %q", flag, path, k.Use)
		}
		if tenant != "" && k.Tenant != "" && k.Tenant != tenant {
			return nil, fmt.Errorf("%s %s: the JWK is bound to tenant %q", flag, path, k.Tenant)
		}
		if tenant != "" {
			k.Tenant = tenant
		}
		return []verify.Key{k}, nil
	}
	public, err := verify.ParsePublicPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	k, err := verify.NewKey(public, use, tenant)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return []verify.Key{k}, nil
}
