package txn

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestCheckRevision(t *testing.T) {
	cases := []struct {
		name       string
		want, have int64
		moved      bool
	}{
		{"any revision of an object", 0, 7, false},
		{"any revision without an object", 0, 0, false},
		{"the present revision", 7, 7, false},
		{"an earlier revision", 6, 7, true},
		{"a revision of a removed object", 7, 0, true},
		{"Present with an object", Present, 7, false},
		{"Present without an object", Present, 0, true},
		{"Absent with an object", Absent, 7, true},
		{"Absent without an object", Absent, 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := CheckRevision("group lobby", c.want, c.have)
			_, moved := errors.AsType[*MovedError](err)
			if moved != c.moved || !moved && err != nil {
				t.Errorf("err = %v, want a MovedError: %t", err, c.moved)
			}
			if moved && !strings.Contains(err.Error(), "group lobby") {
				t.Errorf("%q does not name the object", err)
			}
		})
	}
}

func TestMovedErrorNamesTheLastChange(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	err := &MovedError{What: "group lobby", Want: 6, Have: 7, By: "ada", At: at}
	for _, part := range []string{"group lobby", "revision 6", "ada", "2026-01-02T03:04:05Z"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestRetryConflicts(t *testing.T) {
	conflict := errs.New(errs.Conflict, "too slow")
	invalid := errs.New(errs.Invalid, "too long")
	cases := []struct {
		name  string
		errs  []error // one per call; the last repeats
		calls int
		want  error
	}{
		{"success at once", []error{nil}, 1, nil},
		{"success after a lost race", []error{conflict, nil}, 2, nil},
		{"another error ends the attempts", []error{conflict, invalid}, 2, invalid},
		{"attempts are bounded", []error{conflict}, attempts, conflict},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			err := RetryConflicts(func() error {
				calls++
				return c.errs[min(calls, len(c.errs))-1]
			})
			if calls != c.calls || !errors.Is(err, c.want) {
				t.Errorf("%d calls and %v, want %d and %v", calls, err, c.calls, c.want)
			}
		})
	}
}
