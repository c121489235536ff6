// Package await lets tests wait for a condition instead of a fixed time. If the condition does not
// hold in time, the test fails and shows the last state.
package await

import (
	"cmp"
	"flag"
	"fmt"
	"strconv"
	"testing"
	"time"
)

const (
	// Patience bounds every wait of a test: long enough for a loaded machine of two cores,
	// short enough to end before the ten minutes that go test gives a package.
	Patience = 3 * time.Minute
	// every is the pause between two checks.
	every = 5 * time.Millisecond
)

// That calls check every few milliseconds until it returns "". After Patience the test fails
// and prints what, and the last result of check.
func That(t testing.TB, what string, check func() string) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; <-time.After(every) {
		last := check()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s; last state: %s", what, last)
		}
	}
}

// Unless returns the result of a check: "" if ok, otherwise the formatted state, which is never
// "".
func Unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return cmp.Or(fmt.Sprintf(format, args...), "nothing")
}

// Parallel lets up to n tests of the package run at once, unless the flag -parallel is set. Call it
// in TestMain of a package whose tests mostly wait.
func Parallel(n int) {
	const name = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		_ = flag.Set(name, strconv.Itoa(n)) // it fails only for text that is not a number
	}
}
