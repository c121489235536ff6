package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// errorBodyLimit bounds how much of an error reply a client reads.
const errorBodyLimit = 64 << 10

// DecodeError turns an error reply of any dialect into an *errs.Error. The Kind comes from "kind",
// else from code and status. It is nil for a status below 400. It reads the reply's body but does
// not close it.
func DecodeError(resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBodyLimit)) // half a body still has a status
	e := &errs.Error{Op: operation(resp), Kind: KindOf(resp.StatusCode, "")}
	if !fill(e, resp.StatusCode, body) {
		e.Message = foreign(resp.StatusCode, body)
	}
	return e
}

// fill decodes the envelope of any dialect into e.
func fill(e *errs.Error, status int, body []byte) bool {
	var v1 v1Envelope
	if err := json.Unmarshal(body, &v1); err == nil && v1.Error.Message != "" {
		e.Message, e.Field = v1.Error.Message, v1.Error.Field
		e.Kind = KindOf(status, v1.Error.Code)
		if k, ok := kindNamed(v1.Error.Kind); ok {
			e.Kind = k
		}
		return true
	}
	var uni universeEnvelope
	if err := json.Unmarshal(body, &uni); err == nil && uni.Error != "" {
		e.Message = uni.Error
		return true
	}
	return false
}

// operation names the request without its query, because queries may contain tickets.
func operation(resp *http.Response) string {
	if resp.Request == nil || resp.Request.URL == nil {
		return ""
	}
	return resp.Request.Method + " " + resp.Request.URL.Path
}

// foreign returns a message for a reply in no known dialect, e.g. from a proxy in between.
func foreign(status int, body []byte) string {
	const keep = 200
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), keep)]), "")), " ")
	msg := strings.TrimSpace(fmt.Sprintf("the server answered %d %s", status, http.StatusText(status)))
	if text != "" && !strings.HasPrefix(text, "<") {
		msg += ": " + text
	}
	return msg
}
