package directory

import (
	"slices"
	"time"
)

// settling is how long something must be missing from a source that is read in place, such
// as a directory, before its removal counts as intended. Editors that replace a file by
// removing it first have finished by then.
const settling = time.Minute

// absence records what has been missing from a source that is read in place, without any
// change between looks. It is lost when another replica takes over the source or this one
// restarts: the waiting time then starts again, so nothing is removed too early. The zero
// value means that nothing is missing.
type absence struct {
	moment string   // the place, and when a name in it last appeared or disappeared
	names  []string // sorted
	since  time.Time
}

// seen returns the absence after another look.
func (a absence) seen(moment string, names []string, now time.Time) absence {
	switch {
	case len(names) == 0:
		return absence{}
	case moment == a.moment && slices.Equal(names, a.names):
		return a
	}
	return absence{moment: moment, names: names, since: now}
}

// left returns how long the absence must still last before it counts. It is 0 when the
// absence counts or nothing is missing.
func (a absence) left(quiet time.Duration, now time.Time) time.Duration {
	if len(a.names) == 0 {
		return 0
	}
	return max(0, a.since.Add(quiet).Sub(now))
}
