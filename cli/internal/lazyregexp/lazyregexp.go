// Package lazyregexp compiles regular expressions when they are first used. The command line starts for every command, and
// most commands use few of the patterns of its packages.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled pattern. It panics at its first call if the pattern is wrong. Several
// goroutines may call it.
func New(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
