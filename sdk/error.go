package orrery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The kinds of errors, for errors.Is.
var (
	// ErrInvalid means that the request is malformed or not acceptable (400, 413, 422). The message names the field.
	ErrInvalid = errors.New("the request is not valid")
	// ErrUnauthenticated means that the token is missing, wrong or expired (401).
	ErrUnauthenticated = errors.New("not logged in")
	// ErrDenied means that the caller lacks a permission (403).
	ErrDenied = errors.New("permission denied")
	// ErrNotFound means that the object does not exist (404).
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the state of the object forbids the request, or that it exists already (409).
	ErrConflict = errors.New("conflict")
	// ErrPreconditionFailed means that the object changed since it was read (412).
	ErrPreconditionFailed = errors.New("the object has changed")
	// ErrUnavailable means that the gateway cannot answer now or limits the rate (429, 502, 503, 504).
	ErrUnavailable = errors.New("not available now")
	// ErrUnreachable means that no gateway answered.
	ErrUnreachable = errors.New("no gateway answered")
	// ErrAnswerLost means that a request was carried out, or may have been, and that its answer is lost,
	// because the gateway died that had to give it (409 with the code ALREADY_DONE or OUTCOME_UNKNOWN). Read
	// the object to see. It is also an ErrConflict.
	ErrAnswerLost = errors.New("the answer is lost")
	// ErrAnswer means that an answer cannot be read. If the request was to change something, it may
	// have done so.
	ErrAnswer = errors.New("the answer was cut or is not JSON")
)

// Error is the answer of a gateway that refused a request.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code is the machine-readable kind, like NOT_FOUND or VALIDATION_ERROR. It is empty if the
	// answer did not come from Orrery, but from a proxy for example.
	Code string
	// Message is a sentence for people, without a period at the end.
	Message string
	// Method and Path are those of the request.
	Method, Path string
	// RequestID names the request in the logs of the gateway.
	RequestID string
	// RetryAfter is how long the gateway asks to wait; 0 if it does not.
	RetryAfter time.Duration
}

// Error returns the message.
func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("%s: the server answered %d %s", asked(e.Method, e.Path), e.Status, http.StatusText(e.Status))
}

// asked says in words what a request asks for.
func asked(method, path string) string {
	what := strings.TrimPrefix(path, "/api/v1/")
	switch method {
	case http.MethodGet, http.MethodHead:
		return "reading " + what
	case http.MethodPut:
		return "writing " + what
	case http.MethodPatch:
		return "changing " + what
	case http.MethodDelete:
		return "deleting " + what
	}
	return "asking for " + what
}

// Is reports whether target is the sentinel of the status or of the code.
func (e *Error) Is(target error) bool {
	if target == ErrAnswerLost {
		return e.Code == codeAlreadyDone || e.Code == codeOutcomeUnknown
	}
	return target == sentinelOf(e.Status)
}

func sentinelOf(status int) error {
	switch status {
	case http.StatusUnauthorized:
		return ErrUnauthenticated
	case http.StatusForbidden:
		return ErrDenied
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict:
		return ErrConflict
	case http.StatusPreconditionFailed:
		return ErrPreconditionFailed
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ErrUnavailable
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return ErrInvalid
	}
	return nil
}

// UnreachableError says why no gateway answered.
type UnreachableError struct {
	// Address is the gateway that was tried last.
	Address string
	// Err is the cause.
	Err error
}

// Error returns the address and the cause.
func (e *UnreachableError) Error() string { return "cannot reach " + e.Address + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Is reports whether target is ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// errorBodyLimit is how many bytes of a refusal are read.
const errorBodyLimit = 64 << 10

// wantsTLS reports whether a server answered that it got a request without TLS: one in Go, or nginx.
func wantsTLS(body string) bool {
	return strings.HasPrefix(body, "Client sent an HTTP request to an HTTPS server") || strings.Contains(body, "plain HTTP request was sent to HTTPS port")
}

// errorOf reads a refusal and closes its body.
func errorOf(response *http.Response) *Error {
	defer response.Body.Close()
	request := response.Request
	e := &Error{
		Status: response.StatusCode, Method: request.Method, Path: request.URL.Path,
		RequestID: response.Header.Get("X-Request-Id"), RetryAfter: retryAfter(response.Header),
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, errorBodyLimit)) // a cut refusal still has its status
	var refusal struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &refusal) == nil {
		e.Code, e.Message = refusal.Error.Code, strings.TrimSuffix(refusal.Error.Message, ".")
	}
	if e.Message == "" && response.StatusCode == http.StatusBadRequest && wantsTLS(string(body)) {
		e.Message = "the server at " + request.URL.Host + " speaks HTTPS, not HTTP: use https://" + request.URL.Host
	}
	return e
}

// retryAfter returns the pause that a gateway asks for, in whole seconds.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
