//go:build synctests

package kafkatest

import (
	"testing"
	"testing/synctest"
)

// VirtualTime tells whether [Bubble] runs in virtual time.
const VirtualTime = true

// Bubble runs a test against kfake in virtual time: testing/synctest and
// [Virtual]. The client's mutexes let the bubble's clock go on only with the
// build tag synctests; without it Bubble runs the same test in real time.
func Bubble(t *testing.T, o Options, test func(t *testing.T, c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, Virtual(t, o)) })
}
