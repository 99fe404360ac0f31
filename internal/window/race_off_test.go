//go:build !race

package window_test

// raceDetector reports whether this is a build with -race.
const raceDetector = false
