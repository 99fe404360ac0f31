package main

import "errors"

type replayCmd struct{}

func (c *replayCmd) Run(g *globals) error { return errors.New("replay: not built yet") }
