package bodycache

import (
	"bytes"
	"strconv"
	"time"
)

// UptimeObject is an encoded object in which only the uptime changes.
type UptimeObject struct {
	body []byte
	// at is the index of the uptime, encoded as one digit; 0 if the uptime does not change.
	at    int
	since time.Time
}

var uptimeField = []byte(`"uptimeMs":`)

// NewUptimeObject takes an object that was encoded with uptimeMs 0 and the start of its uptime.
// With a zero since, uptimeMs does not change.
func NewUptimeObject(body []byte, since time.Time) UptimeObject {
	if since.IsZero() {
		return UptimeObject{body: body}
	}
	// A JSON string cannot contain this field, because its quotes would be escaped.
	return UptimeObject{body: body, at: bytes.Index(body, uptimeField) + len(uptimeField), since: since}
}

// Append appends the object with its uptime at now.
func (o UptimeObject) Append(to []byte, now time.Time) []byte {
	if o.at == 0 {
		return append(to, o.body...)
	}
	to = append(to, o.body[:o.at]...)
	to = strconv.AppendInt(to, max(0, now.Sub(o.since).Milliseconds()), 10)
	return append(to, o.body[o.at+1:]...)
}
