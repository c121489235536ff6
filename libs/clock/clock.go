// Package clock returns the wall clock with an offset from the environment.
package clock

import (
	"fmt"
	"strings"
	"time"
)

// Variable is the environment variable with an offset of a program's wall clock, such as 12h or
// -140s. It is not a setting. It exists for tests that simulate hosts with wrong clocks, and
// affects only times that are written into records or compared with them.
const Variable = "ORRERY_CLOCK_AHEAD"

// FromEnv returns the wall clock with the offset set in env.
func FromEnv(env []string) (now func() time.Time, err error) {
	for _, v := range env {
		text, ok := strings.CutPrefix(v, Variable+"=")
		if !ok || text == "" {
			continue
		}
		ahead, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%s must be a duration such as 12h or -140s", Variable, text)
		}
		return func() time.Time { return time.Now().Add(ahead) }, nil
	}
	return time.Now, nil
}
