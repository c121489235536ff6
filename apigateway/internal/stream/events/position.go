package events

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// Position is a point between events: after the n-th event of a revision. The zero Position is
// before all events.
type Position struct {
	// Rev is an etcd revision.
	Rev int64
	// N is the number of the revision's events before the position, 0 for all of them.
	N int
}

// ParsePosition parses an event ID, "<revision>" or "<revision>-<n>". ok is false for anything else.
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

// number parses a decimal number without a sign or leading zeros.
func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

// String returns the ID of the event right before the position.
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

// ordinal returns N, with "all of them" as the largest value.
func (p Position) ordinal() int {
	if p.N == 0 {
		return math.MaxInt
	}
	return p.N
}
