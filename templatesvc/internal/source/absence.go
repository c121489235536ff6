package source

import (
	"slices"
	"time"
)

// settling is how long what is read as it stands, such as a directory, must have had
// something no more before that counts as somebody's deed: whoever replaces a file by
// removing it first is done by then.
const settling = time.Minute

// absence is what was missing at the latest look at a source that is read as it stands:
// at all looks since then, of which nothing came or went between any two. The zero value is
// of a source in which nothing was. It is forgotten when another replica works on the
// source, or this one is started: then it begins anew, and nothing goes before its time.
type absence struct {
	moment string   // the place, and when a name in it came or went last
	names  []string // in order
	since  time.Time
}

// seen is the absence after a look.
func (a absence) seen(moment string, names []string, now time.Time) absence {
	switch {
	case len(names) == 0:
		return absence{}
	case moment == a.moment && slices.Equal(names, a.names):
		return a
	}
	return absence{moment: moment, names: names, since: now}
}

// left is how long it must last until it counts; 0 when it does, or there is none.
func (a absence) left(quiet time.Duration, now time.Time) time.Duration {
	if len(a.names) == 0 {
		return 0
	}
	return max(0, a.since.Add(quiet).Sub(now))
}
