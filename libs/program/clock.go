package program

import (
	"fmt"
	"strings"
	"time"
)

// clockVariable is the environment variable that sets a program's wall clock ahead, or
// back, by a duration such as 12h or -140s. It is no setting: it is there for tests that
// run programs on hosts whose clocks are wrong, and changes only the times that are
// written into records or compared with them.
const clockVariable = "ORRERY_CLOCK_AHEAD"

// clock reads the wall clock as the environment asks for.
func clock(env []string) (now func() time.Time, err error) {
	for _, v := range env {
		text, ok := strings.CutPrefix(v, clockVariable+"=")
		if !ok || text == "" {
			continue
		}
		ahead, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: it must be a duration such as 12h or -140s", clockVariable, text)
		}
		return func() time.Time { return time.Now().Add(ahead) }, nil
	}
	return time.Now, nil
}
