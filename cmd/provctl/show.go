package main

import "errors"

type showCmd struct{}

func (c *showCmd) Run(g *globals) error { return errors.New("show: not built yet") }
