package txn

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// MovedError says that an object is not at the revision that the caller requires. If Want is 0, the field What is
// the complete message.
type MovedError struct {
	What       string
	Want, Have int64
	// By changed the object last, at At. Both are empty if unknown.
	By string
	At time.Time
}

// Error returns the message with what to do next.
func (e *MovedError) Error() string {
	what, last := e.What, ""
	if e.By != "" {
		last = fmt.Sprintf("%s changed it at %s; ", e.By, e.At.Format(time.RFC3339))
	}
	switch {
	case e.Want != 0:
		return fmt.Sprintf("%s is not at revision %d any more: %sread it again", what, e.Want, last)
	case last != "":
		return fmt.Sprintf("%s (%s)", what, strings.TrimSuffix(last, "; "))
	}
	return what
}

// NameChanger adds to a MovedError in err who made the last change, if the audit knows. It returns
// err.
func (o *Committer) NameChanger(err error) error {
	var moved *MovedError
	if !errors.As(err, &moved) || moved.Have == 0 {
		return err
	}
	for _, e := range o.Snapshot().Audit.Back() {
		if e.ModRev == moved.Have {
			moved.By, moved.At = e.Username, e.CreatedAt
			break
		}
	}
	return err
}

// Special values of a required revision.
const (
	// Present requires that the object exists, Absent that it does not.
	Present int64 = -1
	Absent  int64 = -2
)

// CheckRevision returns a MovedError unless the object called what is at revision want. want may
// also be 0 (any), Present or Absent. have is the present revision, 0 when there is no object.
func CheckRevision(what string, want, have int64) error {
	switch {
	case want == 0, want == have, want == Present && have != 0, want == Absent && have == 0:
		return nil
	case want == Present:
		return &MovedError{What: what + " does not exist, and the request is to change an existing one only (If-Match): read it again, or create it"}
	case want == Absent:
		return &MovedError{What: what + " already exists, and the request is to create it only (If-None-Match): read it, then change it", Have: have}
	}
	return &MovedError{What: what, Want: want, Have: have}
}

// RetryConflicts calls try until it returns no Conflict, a bounded number of times.
func RetryConflicts(try func() error) (err error) {
	for range attempts {
		if err = try(); !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return err
}
