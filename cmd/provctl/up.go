package main

import "errors"

type upCmd struct{}

func (c *upCmd) Run(g *globals) error { return errors.New("up: not built yet") }
