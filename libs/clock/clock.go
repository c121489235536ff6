// Package clock reads the wall clock as the environment sets it.
package clock

import (
	"fmt"
	"strings"
	"time"
)

// Variable is the environment variable that sets a program's wall clock ahead, or
// back, by a duration such as 12h or -140s. It is no setting: it is there for tests that
// run programs on hosts whose clocks are wrong, and changes only the times that are
// written into records or compared with them.
const Variable = "ORRERY_CLOCK_AHEAD"

// FromEnv is the wall clock as an environment sets it.
func FromEnv(env []string) (now func() time.Time, err error) {
	for _, v := range env {
		text, ok := strings.CutPrefix(v, Variable+"=")
		if !ok || text == "" {
			continue
		}
		ahead, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: it must be a duration such as 12h or -140s", Variable, text)
		}
		return func() time.Time { return time.Now().Add(ahead) }, nil
	}
	return time.Now, nil
}
