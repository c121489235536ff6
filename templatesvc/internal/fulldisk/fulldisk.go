// Package fulldisk tells a full disk from other trouble with it.
package fulldisk

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Is reports whether an error is that of a disk without room, or of a used up quota.
func Is(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Error is what a failure to write comes to: Exhausted, with what to do, where the disk is
// full, else Unavailable; nil when nothing failed.
func Error(op string, err error) error {
	if Is(err) {
		return &errs.Error{Op: op, Kind: errs.Exhausted, Err: err, Message: "the disk of the templates' content is full: delete versions, or give it room"}
	}
	return errs.As(errs.Unavailable, op, err)
}
