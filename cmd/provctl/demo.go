package main

import "errors"

type demoCmd struct{}

func (c *demoCmd) Run(g *globals) error { return errors.New("demo: not built yet") }
