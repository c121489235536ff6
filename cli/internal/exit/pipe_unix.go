//go:build unix

package exit

import (
	"errors"
	"syscall"
)

// IsBrokenPipe reports whether err means that the reader of standard output has gone.
func IsBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
