//go:build !unix

package embedded

// lock cannot keep a second process out here.
func lock(string) (unlock func() error, err error) {
	return func() error { return nil }, nil
}
