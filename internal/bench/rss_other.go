//go:build !linux

package bench

// maxRSSUnit is what getrusage counts ru_maxrss in: bytes on Darwin.
const maxRSSUnit = 1
