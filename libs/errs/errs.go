// Package errs defines Orrery's one error type: an operation, a Kind and a message.
//
// A function wraps an error once, adding the operation and the object, and returns it.
// The code that handles it decides by Kind. One table in package wire derives the HTTP status from
// the Kind, and a client turns the status back into the Kind, so a Kind survives a network hop.
//
// The Message of an Error is written for the user and says what to do next. The wrapped cause is
// for operators and is never sent over HTTP.
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
	// Internal is a defect or an unclassified failure. It is the Kind of errors from other
	// packages.
	Internal Kind = iota
	// Malformed is input that cannot be decoded: bad syntax, an unknown field, a wrong type.
	Malformed
	// Invalid is well-formed input that is not acceptable. Field names the input field.
	Invalid
	// NotFound means the named object does not exist.
	NotFound
	// AlreadyExists means that an object of that name already exists.
	AlreadyExists
	// Conflict means the object changed since it was read, or its state forbids the request.
	Conflict
	// Fenced means that the writer has lost its ownership. It must stop and not retry.
	Fenced
	// Unavailable means that a dependency does not respond now. Retry later.
	Unavailable
	// Exhausted means a limit is reached: capacity, quota or rate.
	Exhausted
	// TooLarge means a request body or an object exceeds a size limit.
	TooLarge
	// Unauthenticated means that the caller's identity could not be verified.
	Unauthenticated
	// Denied means that the caller lacks the permission.
	Denied
	// Canceled means the caller gave up.
	Canceled
)

// kindNames are the names in logs and in replies between services.
var kindNames = [...]string{
	Internal: "internal", Malformed: "malformed", Invalid: "invalid", NotFound: "not_found", AlreadyExists: "already_exists",
	Conflict: "conflict", Fenced: "fenced", Unavailable: "unavailable", Exhausted: "exhausted", TooLarge: "too_large",
	Unauthenticated: "unauthenticated", Denied: "denied", Canceled: "canceled",
}

// Kinds lists every Kind, for tables and tests.
var Kinds = [...]Kind{
	Internal, Malformed, Invalid, NotFound, AlreadyExists, Conflict, Fenced, Unavailable,
	Exhausted, TooLarge, Unauthenticated, Denied, Canceled,
}

// String returns the Kind's name. An unknown Kind counts as Internal.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		k = Internal
	}
	return kindNames[k]
}

// Error is an error with a Kind.
type Error struct {
	// Op is the failed operation, e.g. "store.Commit". It may be empty, e.g. for a user's mistake.
	Op string
	// Kind classifies the error.
	Kind Kind
	// Field is the path of the wrong input field, e.g. "portRangeStart". It may be empty.
	Field string
	// Message is a sentence for the user, without a period at the end.
	Message string
	// Err is the cause, for operators. It may be nil.
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error with a formatted message.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Field returns an Invalid error for an input field.
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

// WrapAs adds an operation to err and replaces its Kind. WrapAs(kind, op, nil) is nil.
func WrapAs(kind Kind, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Kind: kind, Field: FieldOf(err), Err: err}
}

// KindOf returns the Kind of the outermost Error in err's chain. Without one it is Canceled for
// context.Canceled, Unavailable for context.DeadlineExceeded, and otherwise Internal.
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

// Is reports whether err has the Kind. Is(nil, kind) is false.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// FieldOf returns the input field that err names, or "".
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

// MessageOf returns the outermost Message in the chain, or a generic sentence if there is none.
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
