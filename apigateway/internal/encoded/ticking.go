package encoded

import (
	"bytes"
	"strconv"
	"time"
)

// Ticking is an encoded object in which only the time it has been up changes.
type Ticking struct {
	body []byte
	// at is where that time is in the body, as one digit; 0 when it does not change.
	at    int
	since time.Time
}

var uptimeField = []byte(`"uptimeMs":`)

// NewTicking keeps an object that was encoded with 0 as its uptimeMs and has been up since a
// time. The uptimeMs of an object with a zero since does not change.
func NewTicking(body []byte, since time.Time) Ticking {
	if since.IsZero() {
		return Ticking{body: body}
	}
	// No string can have this in it: its quotes would be escaped.
	return Ticking{body: body, at: bytes.Index(body, uptimeField) + len(uptimeField), since: since}
}

// Append adds the object as it is at a time.
func (t Ticking) Append(to []byte, now time.Time) []byte {
	if t.at == 0 {
		return append(to, t.body...)
	}
	to = append(to, t.body[:t.at]...)
	to = strconv.AppendInt(to, max(0, now.Sub(t.since).Milliseconds()), 10)
	return append(to, t.body[t.at+1:]...)
}
