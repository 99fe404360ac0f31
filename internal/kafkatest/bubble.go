//go:build !synctests

package kafkatest

import "testing"

// VirtualTime tells whether [Bubble] runs in virtual time.
const VirtualTime = false

// Bubble runs a test against kfake on loopback in real time. With the build tag
// synctests it is virtual time: hours are milliseconds. A test that needs hours
// asks [VirtualTime] and skips.
func Bubble(t *testing.T, o Options, test func(t *testing.T, c *Cluster)) {
	t.Helper()
	test(t, Loopback(t, o))
}
