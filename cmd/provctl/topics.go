package main

import "errors"

type topicsCmd struct {
	Create topicsCreateCmd `cmd:"" help:"Create the topics that are missing."`
	Check  topicsCheckCmd  `cmd:"" help:"Compare the cluster's topics with the table."`
	List   topicsListCmd   `cmd:"" help:"Print the table of topics."`
}

type topicsCreateCmd struct{}

func (c *topicsCreateCmd) Run(g *globals) error { return errors.New("topics create: not built yet") }

type topicsCheckCmd struct{}

func (c *topicsCheckCmd) Run(g *globals) error { return errors.New("topics check: not built yet") }

type topicsListCmd struct{}

func (c *topicsListCmd) Run(g *globals) error { return errors.New("topics list: not built yet") }
