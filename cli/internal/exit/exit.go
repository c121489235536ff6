// Package exit gives each error of a command its exit code and its next step.
package exit

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	orrery "github.com/orreryhq/orrery/sdk"
)

// The exit codes. Scripts depend on them.
const (
	OK           = 0
	Failed       = 1   // an error, and input that the server does not accept (422)
	Usage        = 2   // wrong arguments or flags, or an answer that only a terminal can give
	Denied       = 3   // 401 and 403
	NotFound     = 4   // 404, and names that do not exist
	Unavailable  = 5   // no gateway answers, 429, 503
	Conflict     = 6   // 409 and 412
	TimedOut     = 7   // --timeout passed
	Interrupted  = 130 // Ctrl-C
	sigPipeQuiet = 141 // the reader of a pipe closed it
)

// Error is an error with an exit code and a next step.
type Error struct {
	// Code is the exit code; 0 means that of Err.
	Code int
	// Err says what failed.
	Err error
	// Hint is what the user can do next, without a period. It may be empty.
	Hint string
}

// Error returns the message of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// With returns err with an exit code and a hint. With(code, nil, hint) is nil.
func With(code int, err error, hint string) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err, Hint: hint}
}

// Hint returns err with a next step and the exit code it has.
func Hint(err error, hint string) error {
	var coded *Error
	if errors.As(err, &coded) {
		return With(coded.Code, err, hint)
	}
	return With(0, err, hint)
}

// Explain returns err with a hint that says what was done, and then the next step.
func Explain(err error, what string) error {
	if hint := HintOf(err); hint != "" {
		what += "; " + hint
	}
	return Hint(err, what)
}

// CodeOf returns the exit code of err.
func CodeOf(err error) int {
	var coded *Error
	for cause := err; errors.As(cause, &coded); cause = coded.Err {
		if coded.Code != 0 {
			return coded.Code
		}
	}
	switch {
	case err == nil:
		return OK
	case IsBrokenPipe(err):
		return sigPipeQuiet
	case errors.Is(err, orrery.ErrUnavailable), errors.Is(err, orrery.ErrUnreachable):
		return Unavailable // before TimedOut: timeouts of connections match context.DeadlineExceeded too
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.Is(err, orrery.ErrUnauthenticated), errors.Is(err, orrery.ErrDenied):
		return Denied
	case errors.Is(err, orrery.ErrNotFound):
		return NotFound
	case errors.Is(err, orrery.ErrConflict), errors.Is(err, orrery.ErrPreconditionFailed):
		return Conflict
	}
	return Failed
}

// LogIn is the next step after a login that is missing or has ended.
const LogIn = "log in: orrery login"

// noRoute begins what a server answers that does not have the call.
const noRoute = "there is no such route"

// HintOf returns the next step after err; empty if none is known.
func HintOf(err error) string {
	var hinted *Error
	for cause := err; errors.As(cause, &hinted); cause = hinted.Err {
		if hinted.Hint != "" {
			return hinted.Hint
		}
	}
	var refusal *orrery.Error
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return "use http:// in the URL; passwords and tokens can then be read on the way"
	case errors.As(err, &authority):
		return "if you trust that authority, pass its certificate: --ca FILE, or orrery context set NAME --ca FILE"
	case errors.As(err, &name):
		return "use a URL with a name that the certificate has"
	case errors.As(err, &invalid):
		return "renew the certificate on the server, or check the clock of this machine"
	case errors.Is(err, orrery.ErrUnauthenticated):
		return LogIn
	case errors.Is(err, orrery.ErrDenied):
		return "see what you may do: orrery get me"
	case errors.Is(err, orrery.ErrUnreachable):
		return "check that Orrery runs there: orrery up starts it on this machine, orrery context list shows the servers you know"
	case errors.Is(err, orrery.ErrPreconditionFailed):
		return "somebody changed it meanwhile: read it again and repeat the change"
	case errors.As(err, &refusal) && refusal.Status == http.StatusNotFound && strings.HasPrefix(refusal.Message, noRoute):
		return "the server is of another release than this program: orrery version shows both"
	case errors.As(err, &refusal) && refusal.Status == http.StatusTooManyRequests:
		return "wait a minute and try again"
	}
	return ""
}
