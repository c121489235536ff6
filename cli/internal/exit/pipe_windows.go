package exit

import (
	"errors"
	"syscall"
)

// The codes of a write to a pipe whose reader has gone.
const (
	errorBrokenPipe = syscall.Errno(109)
	errorNoData     = syscall.Errno(232)
)

// IsBrokenPipe reports whether err means that the reader of standard output has gone.
func IsBrokenPipe(err error) bool {
	return errors.Is(err, errorBrokenPipe) || errors.Is(err, errorNoData)
}
