// Package errs is the one error type of Orrery: an operation, a Kind and a
// sentence.
//
// A function wraps an error once with what it knows (the operation, the object)
// and returns it; whoever handles it decides by Kind. The HTTP status of an
// error follows from its Kind in one table (package wire), and a client turns
// the status back into the Kind, so a Kind survives a network hop.
//
// The Message of an Error is written for the user and says what to do next; the
// wrapped cause is for operators and never leaves the process over HTTP.
package errs

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind classifies an error by what its receiver can do about it.
type Kind uint8

// The Kinds. Every switch over Kind handles all of them.
const (
	// Internal is a defect or an unclassified failure: report it. It is the Kind of any foreign error.
	Internal Kind = iota
	// Malformed is input that cannot be read: bad syntax, an unknown field, a wrong type.
	Malformed
	// Invalid is well-formed input that is not acceptable; Field names the culprit.
	Invalid
	// NotFound means the named object does not exist.
	NotFound
	// AlreadyExists means a create met an object of that name.
	AlreadyExists
	// Conflict means the object changed since it was read, or its state forbids the request.
	Conflict
	// Fenced means the author no longer owns what it wrote for. It must step down, never retry.
	Fenced
	// Unavailable means a dependency does not answer now: retry later.
	Unavailable
	// Exhausted means a limit is reached: capacity, quota or rate.
	Exhausted
	// TooLarge means a request body or an object exceeds a size limit.
	TooLarge
	// Unauthenticated means the caller did not prove who it is.
	Unauthenticated
	// Denied means the caller is known and may not do this.
	Denied
	// Canceled means the caller gave up.
	Canceled
)

// Kinds lists every Kind, for tables and tests.
var Kinds = [...]Kind{
	Internal, Malformed, Invalid, NotFound, AlreadyExists, Conflict, Fenced, Unavailable,
	Exhausted, TooLarge, Unauthenticated, Denied, Canceled,
}

// String is the Kind's name as it stands in logs.
func (k Kind) String() string {
	switch k {
	case Internal:
		return "internal"
	case Malformed:
		return "malformed"
	case Invalid:
		return "invalid"
	case NotFound:
		return "not_found"
	case AlreadyExists:
		return "already_exists"
	case Conflict:
		return "conflict"
	case Fenced:
		return "fenced"
	case Unavailable:
		return "unavailable"
	case Exhausted:
		return "exhausted"
	case TooLarge:
		return "too_large"
	case Unauthenticated:
		return "unauthenticated"
	case Denied:
		return "denied"
	case Canceled:
		return "canceled"
	}
	return "internal"
}

// Error is an error with a Kind.
type Error struct {
	// Op is what was being done, e.g. "store.Commit". Empty at the boundary of a user's mistake.
	Op string
	// Kind says what the receiver can do.
	Kind Kind
	// Field is the path of the offending input field, e.g. "portRangeStart". Empty when no field is to blame.
	Field string
	// Message is a sentence for the user, without trailing period when it is joined to others.
	Message string
	// Err is the cause, for operators. Nil when this error is the origin.
	Err error
}

// Error joins operation, message and cause for a log line.
func (e *Error) Error() string {
	var parts []string
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	if len(parts) == 0 {
		return e.Kind.String()
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// New makes an origin error of a Kind with a formatted message.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Field makes an Invalid error that names the field.
func Field(field, format string, args ...any) *Error {
	return &Error{Kind: Invalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Wrap adds an operation to err and keeps its Kind. Wrap(op, nil) is nil.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Kind: KindOf(err), Field: FieldOf(err), Err: err}
}

// As adds an operation and sets the Kind. As(kind, op, nil) is nil.
func As(kind Kind, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Kind: kind, Field: FieldOf(err), Err: err}
}

// KindOf is the Kind of the outermost Error in err's chain. Context
// cancellation is Canceled, an exceeded deadline Unavailable, anything foreign Internal.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	}
	return Internal
}

// Is reports whether err is of the Kind. Is(nil, k) is false.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// FieldOf is the input field err blames, "" if none.
func FieldOf(err error) string {
	var e *Error
	for errors.As(err, &e) {
		if e.Field != "" {
			return e.Field
		}
		err = e.Err
	}
	return ""
}

// MessageOf is the sentence for the user: the outermost Message in the chain,
// and a neutral sentence when nobody wrote one.
func MessageOf(err error) string {
	var e *Error
	for errors.As(err, &e) {
		if e.Message != "" {
			return e.Message
		}
		err = e.Err
	}
	return "the request could not be completed"
}
