// Package diskerror distinguishes a full disk from other disk errors.
package diskerror

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Is reports whether an error means a full disk or an exceeded quota.
func Is(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Error wraps a write error: as Exhausted, with advice, if the disk is full, and otherwise
// as Unavailable. It returns nil for nil.
func Error(op string, err error) error {
	if Is(err) {
		return &errs.Error{Op: op, Kind: errs.Exhausted, Err: err, Message: "the disk of the templates' content is full: delete versions, or give it room"}
	}
	return errs.WrapAs(errs.Unavailable, op, err)
}
