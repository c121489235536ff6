// Package wire transfers errors and JSON bodies over HTTP.
//
// One table (in this file) maps each Kind of errs to a status and code, and a status back to a
// Kind. Servers answer with Encode, clients decode with DecodeError, and bodies are decoded with
// DecodeJSON.
//
// Invariants:
//   - Every Kind has a row, so no other code switches over Kinds.
//   - Between Orrery's services (dialect Internal) the Kind and field survive the hop: DecodeError(Encode(err)) has the Kind of err.
//   - Causes never leave the process. An Internal error shows only the request ID, in every dialect.
//   - Bad input is never Internal: DecodeJSON fails with Malformed or TooLarge.
//
// The package does not log, route or limit rates, and knows no service.
package wire

import (
	"net/http"

	"github.com/orreryhq/orrery/libs/errs"
)

// StatusClientClosed is the status of a request that its caller cancelled. Only the access log
// shows it.
const StatusClientClosed = 499

// row maps a Kind to HTTP.
type row struct {
	kind   errs.Kind
	status int
	// universe is the status in the Universe dialect if it differs, else 0.
	universe int
	code     string
	// fallback is the message for errors without one.
	fallback string
}

// table has one row per Kind. If two Kinds share a status, the first row wins in the reverse
// direction, unless the code or kind of the reply distinguishes them.
var table = [...]row{
	{errs.Malformed, http.StatusBadRequest, 0, "BAD_REQUEST", "the request could not be read"},
	{errs.Invalid, http.StatusUnprocessableEntity, 0, "VALIDATION_ERROR", "the request is not acceptable"},
	{errs.Unauthenticated, http.StatusUnauthorized, 0, "UNAUTHORIZED", "log in or send a valid token"},
	{errs.Denied, http.StatusForbidden, 0, "FORBIDDEN", "you may not do this"},
	{errs.NotFound, http.StatusNotFound, 0, "NOT_FOUND", "there is no such object"},
	{errs.Conflict, http.StatusConflict, 0, "CONFLICT", "the object changed meanwhile: read it again and retry"},
	{errs.AlreadyExists, http.StatusConflict, 0, "CONFLICT", "an object of that name exists"},
	{errs.Exhausted, http.StatusConflict, http.StatusServiceUnavailable, "EXHAUSTED", "a limit is reached"},
	{errs.TooLarge, http.StatusRequestEntityTooLarge, 0, "PAYLOAD_TOO_LARGE", "the request is too large"},
	{errs.Unavailable, http.StatusServiceUnavailable, 0, "UNAVAILABLE", "a part of the system does not answer now: retry"},
	{errs.Fenced, http.StatusServiceUnavailable, 0, "UNAVAILABLE", "the work has moved to another replica: retry"},
	{errs.Canceled, StatusClientClosed, 0, "CANCELED", "the request was given up by its caller"},
	{errs.Internal, http.StatusInternalServerError, 0, "INTERNAL_ERROR", "internal error"},
}

func rowOf(kind errs.Kind) row {
	for _, r := range table {
		if r.kind == kind {
			return r
		}
	}
	return rowOf(errs.Internal)
}

// Status returns the HTTP status of a Kind in the V1 and Internal dialects.
func Status(kind errs.Kind) int { return rowOf(kind).status }

// Code returns the machine-readable code of a Kind, e.g. NOT_FOUND.
func Code(kind errs.Kind) string { return rowOf(kind).code }

// KindOf returns the Kind of a reply with an error status and a code ("" if unknown). The code
// distinguishes Kinds of the same status. A status outside the table gets the Kind that requires
// the same reaction: retry, correct or report.
func KindOf(status int, code string) errs.Kind {
	for _, r := range table {
		if r.status == status && r.code == code {
			return r.kind
		}
	}
	for _, r := range table {
		if r.status == status {
			return r.kind
		}
	}
	switch status {
	case http.StatusTooManyRequests:
		return errs.Exhausted
	case http.StatusPreconditionFailed:
		return errs.Conflict
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return errs.Unavailable
	case http.StatusGone:
		return errs.NotFound
	}
	if status >= 400 && status < 500 {
		return errs.Invalid
	}
	return errs.Internal
}

// kindNamed finds a Kind by its name in replies between services.
func kindNamed(name string) (errs.Kind, bool) {
	for _, k := range errs.Kinds {
		if k.String() == name {
			return k, true
		}
	}
	return errs.Internal, false
}
