package cluster

import (
	"errors"
	"testing"

	orrery "github.com/orreryhq/orrery/sdk"
)

func TestARefusalNamesTheSettingAsUsersWriteIt(t *testing.T) {
	refusal := &orrery.Error{Status: 400, Message: "patch.security.lockout.maxFailures must be between 1 and 100"}
	if got, want := nameSetting(refusal).Error(), "security.lockout.maxFailures must be between 1 and 100"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if other := errors.New("patch.x"); nameSetting(other) != other {
		t.Error("an error that is not of the server changed")
	}
}
