// Package await is for tests: they wait for a condition, never for a time, and
// when it does not come they say what there was instead.
//
// A wait ends as soon as the condition holds, so patience costs nothing: it is the
// same for all, and long enough for a busy machine. How long something takes is
// nothing a wait tells.
package await

import (
	"cmp"
	"fmt"
	"testing"
	"time"
)

const (
	// Patience bounds every wait of a test: long enough for a loaded machine of two cores,
	// short enough to end before the ten minutes that go test gives a package.
	Patience = 3 * time.Minute
	// every is the pause between two looks.
	every = 5 * time.Millisecond
)

// That waits until check returns "", asking again every few milliseconds. After
// Patience it ends the test, with what was waited for and the last thing check said.
func That(t testing.TB, what string, check func() string) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; <-time.After(every) {
		last := check()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never saw %s; last: %s", what, last)
		}
	}
}

// Unless is what a check returns: "" when all is as it should be, otherwise how it
// is, formatted, and never "".
func Unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return cmp.Or(fmt.Sprintf(format, args...), "nothing")
}
