package events

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// Position is a place between events: after the n-th event of a revision. The
// zero Position is before everything.
type Position struct {
	// Rev is an etcd revision.
	Rev int64
	// N is the number of the revision's events that lie before, 0 for all of them.
	N int
}

// ParsePosition reads an event id, "<revision>" or "<revision>-<n>". ok is false
// for anything else, such as an id of another system.
func ParsePosition(id string) (p Position, ok bool) {
	rev, n, several := strings.Cut(id, "-")
	p.Rev, ok = number(rev)
	if !ok || !several {
		return p, ok
	}
	i, ok := number(n)
	if !ok || i < 1 || i > math.MaxInt32 {
		return Position{}, false
	}
	p.N = int(i)
	return p, true
}

// number reads a decimal number in its one form: no sign, no leading zero.
func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

// String is the id of an event that lies right before the position.
func (p Position) String() string {
	if p.N == 0 {
		return strconv.FormatInt(p.Rev, 10)
	}
	return strconv.FormatInt(p.Rev, 10) + "-" + strconv.Itoa(p.N)
}

// Compare orders positions.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Rev, o.Rev), cmp.Compare(p.ordinal(), o.ordinal()))
}

// ordinal is N with "all of them" as the last.
func (p Position) ordinal() int {
	if p.N == 0 {
		return math.MaxInt
	}
	return p.N
}
