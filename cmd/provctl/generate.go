package main

import "errors"

type generateCmd struct{}

func (c *generateCmd) Run(g *globals) error { return errors.New("generate: not built yet") }
