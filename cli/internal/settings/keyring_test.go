package settings

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAKeyringThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		began := time.Now()
		_, err := bounded(func() (string, error) { <-hang; return "", nil })
		if !errors.Is(err, errKeyringTimeout) || time.Since(began) != keyringTimeout {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		close(hang)
	})
}

func TestAKeyringThatAnswersIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value, err := bounded(func() (string, error) { <-time.After(keyringTimeout - 1); return "login", nil })
		if value != "login" || err != nil {
			t.Errorf("got %q, %v", value, err)
		}
	})
}
