package main

import "errors"

type benchCmd struct{}

func (c *benchCmd) Run(g *globals) error { return errors.New("bench: not built yet") }
