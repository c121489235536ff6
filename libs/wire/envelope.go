package wire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// RetryAfter is the delay that a 503 asks the caller to wait. It is sent in whole seconds.
const RetryAfter = time.Second

// Dialect is the format of an error reply.
type Dialect uint8

// The Dialects.
const (
	// V1 is {"error":{"code","message","status"}}.
	V1 Dialect = iota
	// Universe is {"error":"text"}.
	Universe
	// Internal is V1 with "kind" and, for input errors, "field". Orrery's services use it among
	// themselves.
	Internal
)

// Status returns the HTTP status of a Kind in this dialect. The dialects differ only for
// Exhausted, where Universe sends 503.
func (d Dialect) Status(kind errs.Kind) int {
	r := rowOf(kind)
	if d == Universe && r.universe != 0 {
		return r.universe
	}
	return r.status
}

// Reply is an error reply. Build it by hand only for statuses without a Kind (405, 412, 429) and
// for codes of a single route.
type Reply struct {
	// Status is the HTTP status, 400 to 599.
	Status int
	// Code is the machine-readable code. Universe does not send it.
	Code string
	// Message is the sentence for the user.
	Message string
	// Field is the wrong input field, or "".
	Field string
	// Kind is only sent in Internal.
	Kind errs.Kind
	// RetryAfter asks the caller to wait before the next attempt. It is rounded up to seconds; 0
	// sends no header.
	RetryAfter time.Duration
}

// ReplyTo turns an error into a Reply: status and code from the Kind, message and field from the
// error, and nothing of the cause. The message does not contain the field. Write adds it in the
// dialects for users and sends it separately in Internal, so that it is added only once after two
// hops.
func (d Dialect) ReplyTo(requestID string, err error) Reply {
	r := rowOf(errs.KindOf(err))
	rep := Reply{
		Status:  d.Status(r.kind),
		Code:    r.code,
		Message: message(r, requestID, err),
		Field:   errs.FieldOf(err),
		Kind:    r.kind,
	}
	if rep.Status == http.StatusServiceUnavailable {
		rep.RetryAfter = RetryAfter
	}
	if r.kind == errs.Internal {
		rep.Field = ""
	}
	return rep
}

// message returns the sentence for the user. Internal errors do not show their own message.
func message(r row, requestID string, err error) string {
	if r.kind == errs.Internal {
		if requestID == "" {
			return r.fallback
		}
		return r.fallback + ": report it with request id " + requestID
	}
	msg := errs.MessageOf(err)
	if msg == errs.MessageOf(nil) { // generic; the Kind's fallback says more
		msg = r.fallback
	}
	return msg
}

// Encode answers a request with an error. requestID may be empty. Call it before anything else is
// written.
func Encode(w http.ResponseWriter, d Dialect, requestID string, err error) {
	Write(w, d, d.ReplyTo(requestID, err))
}

// ErrorOf returns the error object of V1, for answers with a result for each of several objects.
func ErrorOf(requestID string, err error) any {
	rep := V1.ReplyTo(requestID, err)
	return v1Error{Code: rep.Code, Message: named(shortened(rep.Field), shortened(rep.Message)), Status: rep.Status}
}

// Write answers a request with a Reply.
func Write(w http.ResponseWriter, d Dialect, rep Reply) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)                            // messages name places such as <group>/<name>, and are not read by browsers
	if err := enc.Encode(d.envelope(rep)); err != nil { // strings and numbers only: cannot happen, and must not hide the status
		body.Reset()
		body.WriteString(`{"error":"internal error"}` + "\n")
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	if rep.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((rep.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(rep.Status)
	_, _ = w.Write(body.Bytes()) // on failure the caller has disconnected
}

type universeEnvelope struct {
	Error string `json:"error"`
	// RetryAfterMs is only sent with 429.
	RetryAfterMs int64 `json:"retryAfterMs,omitempty"`
}

type v1Envelope struct {
	Error v1Error `json:"error"`
}

type v1Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status"`
	Field   string `json:"field,omitempty"`
	Kind    string `json:"kind,omitempty"`
}

func (d Dialect) envelope(rep Reply) any {
	rep.Field, rep.Message = shortened(rep.Field), shortened(rep.Message)
	switch d {
	case Universe:
		out := universeEnvelope{Error: named(rep.Field, rep.Message)}
		if rep.Status == http.StatusTooManyRequests {
			out.RetryAfterMs = rep.RetryAfter.Milliseconds()
		}
		return out
	case Internal:
		return v1Envelope{Error: v1Error{
			Code: rep.Code, Message: rep.Message, Status: rep.Status, Field: rep.Field, Kind: rep.Kind.String(),
		}}
	case V1:
	}
	return v1Envelope{Error: v1Error{Code: rep.Code, Message: named(rep.Field, rep.Message), Status: rep.Status}}
}

// maxMessage bounds a message in bytes.
const maxMessage = 8 << 10

// shortened limits how much of a request a message repeats: a word to maxTold bytes and the whole
// text to maxMessage. The result is valid UTF-8.
func shortened(s string) string {
	if len(s) <= maxTold {
		return s
	}
	const left = "…"
	var out strings.Builder
	word := 0
	for _, r := range s {
		if out.Len() >= maxMessage {
			out.WriteString(left)
			break
		}
		before := word
		if word += utf8.RuneLen(r); unicode.IsSpace(r) {
			word = 0
		}
		switch {
		case word <= maxTold:
			out.WriteRune(r)
		case before <= maxTold:
			out.WriteString(left)
		}
	}
	return out.String()
}

// named puts the field before the message unless the message already starts with it.
func named(field, msg string) string {
	if field == "" {
		return msg
	}
	if rest, ok := strings.CutPrefix(msg, field); ok && !startsWithWord(rest) {
		return msg
	}
	return field + " " + msg
}

// startsWithWord reports whether s continues a word, so that "ports" does not count as the field
// "port".
func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}
