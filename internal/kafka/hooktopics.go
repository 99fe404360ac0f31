package kafka

import (
	"context"
	"slices"
)

// HookTopics are the names of the existing hook topics and of the decisions
// topic, sorted.
func (c *Cluster) HookTopics(ctx context.Context) ([]string, error) {
	found, err := c.hookPartitions(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, t := range found {
		names = append(names, *t.Topic)
	}
	slices.Sort(names)
	return names, nil
}
