package upstream

import (
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// tripAfter is the number of failures in a row after which nothing is tried for retryAfter.
	tripAfter  = 5
	retryAfter = 3 * time.Second
	// maxBreakers bounds the breakers kept; past it they start anew.
	maxBreakers = 10_000
)

// breakers holds one breaker per upstream.
type breakers struct {
	mu sync.Mutex
	by map[string]*gobreaker.CircuitBreaker[any]
}

func newBreakers() *breakers { return &breakers{by: map[string]*gobreaker.CircuitBreaker[any]{}} }

func (b *breakers) of(key string) *gobreaker.CircuitBreaker[any] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.by[key]; ok {
		return have
	}
	if len(b.by) >= maxBreakers {
		clear(b.by)
	}
	made := gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name: key, MaxRequests: 1, Timeout: retryAfter, IsExcluded: notItsFault,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
	})
	b.by[key] = made
	return made
}

// notItsFault reports whether an error says nothing about the upstream's health. One that
// says in words that something does not answer is the upstream's about somebody else.
func notItsFault(err error) bool {
	switch errs.KindOf(err) {
	case errs.Unavailable:
		return said(err)
	case errs.Internal, errs.Fenced:
		return false
	case errs.Malformed, errs.Invalid, errs.NotFound, errs.AlreadyExists, errs.Conflict, errs.Exhausted,
		errs.TooLarge, errs.Unauthenticated, errs.Denied, errs.Canceled:
		return true
	}
	return false
}

// said reports whether an error has words for whoever reads it: those of an answer do,
// those of a connection that was refused or went silent do not.
func said(err error) bool { return errs.MessageOf(err) != errs.MessageOf(nil) }

// through calls f through the breaker of key. name is how the upstream is called
// in a message to users.
func through[T any](b *breakers, key, name string, f func() (T, error)) (T, error) {
	v, err := b.of(key).Execute(func() (any, error) { return f() })
	got, _ := v.(T)
	return got, inWords(name, err)
}

// beside calls f, which may take minutes, unless the breaker of key is open. It is not
// counted: what it came to would be told late, and while a breaker tries whether its
// upstream answers, everything else would wait for it.
func beside[T any](b *breakers, key, name string, f func() (T, error)) (T, error) {
	if b.of(key).State() == gobreaker.StateOpen {
		var none T
		return none, inWords(name, gobreaker.ErrOpenState)
	}
	got, err := f()
	return got, inWords(name, err)
}

// inWords says whose fault an error is, where the upstream did not.
func inWords(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests), errs.Is(err, errs.Unavailable) && !said(err):
		return &errs.Error{Kind: errs.Unavailable, Message: name + " does not answer now: retry in a moment", Err: err}
	case errs.Is(err, errs.Unauthenticated), errs.Is(err, errs.Denied) && errs.FieldOf(err) == "": // it refused us; where it blames a field, our caller
		return &errs.Error{
			Kind: errs.Unavailable, Err: err,
			Message: name + " refused the gateway: give all services the same cluster secret",
		}
	}
	return err
}
