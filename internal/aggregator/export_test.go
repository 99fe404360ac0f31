package aggregator

// SetCalmSteps changes from how many open records on time goes on in steps.
func SetCalmSteps(n int64) (restore func()) {
	before := calmSteps
	calmSteps = n
	return func() { calmSteps = before }
}
