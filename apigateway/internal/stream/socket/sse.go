package socket

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// StartEvents sends the headers of a response with server-sent events.
func StartEvents(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")                               // a buffering proxy would delay events
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // nothing more is read; may be unsupported
	w.WriteHeader(http.StatusOK)
}

// WriteEvent adds a server-sent event to a buffer. An empty id adds none. data must have a JSON form.
func WriteEvent(out *bytes.Buffer, name, id string, data any) {
	b, err := json.Marshal(data)
	if err != nil { // unreachable: only strings and numbers
		b = []byte("{}")
	}
	fmt.Fprintf(out, "event: %s\n", name)
	if id != "" {
		fmt.Fprintf(out, "id: %s\n", id)
	}
	fmt.Fprintf(out, "data: %s\n\n", b)
}

// SSE buffers the server-sent events for one client until Flush.
type SSE struct {
	bytes.Buffer
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
}

// NewSSE returns an SSE. timeout limits one write.
func NewSSE(w http.ResponseWriter, timeout time.Duration) *SSE {
	return &SSE{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Begin sends the headers and the event "connected".
func (e *SSE) Begin(connected any) error {
	StartEvents(e.w)
	e.Event("connected", "", connected)
	return e.Flush()
}

// Event adds an event; see WriteEvent.
func (e *SSE) Event(name, id string, data any) { WriteEvent(&e.Buffer, name, id, data) }

// Flush sends the buffered events. An error means that the client has disconnected or does not read.
func (e *SSE) Flush() error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.timeout)) // unsupported by test recorders only
	if _, err := e.WriteTo(e.w); err != nil {
		return err
	}
	return e.rc.Flush()
}
