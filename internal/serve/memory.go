package serve

import (
	"os"
	"runtime/debug"
)

// gcPercent: the services hold little, so that collecting less often saves more
// CPU than it costs memory. GOGC overrides it, and GOMEMLIMIT bounds the heap as
// ever.
const gcPercent = 150

// TuneGC sets how often the collector runs, unless the environment does.
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
