package diskerror_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
)

func TestAFullDiskIsToldFromOtherTrouble(t *testing.T) {
	for want, err := range map[errs.Kind]error{
		errs.Exhausted:   &os.PathError{Op: "write", Path: "f", Err: unix.ENOSPC},
		errs.Unavailable: errors.Join(unix.EIO),
	} {
		if got := diskerror.Error("test", err); !errs.Is(got, want) || !errors.Is(got, err) {
			t.Errorf("%v: %v (%s)", err, got, errs.KindOf(got))
		}
	}
	if err := diskerror.Error("test", nil); err != nil {
		t.Error(err)
	}
}
