package upstream

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// tripAfter is the number of consecutive failures after which calls stop for retryAfter.
	tripAfter  = 5
	retryAfter = 3 * time.Second
	// maxBreakers limits the number of breakers. Above it, all are dropped.
	maxBreakers = 10_000
	// forgetAfter is how long an unused breaker is kept.
	forgetAfter = 10 * time.Minute
)

// breakers has one breaker per upstream of a kind.
type breakers struct {
	now func() time.Time
	// failed is called for each call that failed because of the upstream.
	failed func()
	// turned is called when a breaker opens (true) and when it closes again.
	turned func(name string, open bool)

	mu sync.Mutex
	by map[string]*kept
}

// kept is a breaker and the time of its last use.
type kept struct {
	*gobreaker.CircuitBreaker[any]
	used time.Time
}

// of returns the breaker of an upstream. name appears in messages.
func (b *breakers) of(key, name string) *gobreaker.CircuitBreaker[any] {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.by[key]; ok {
		have.used = now
		return have.CircuitBreaker
	}
	if len(b.by) >= maxBreakers {
		if b.forget(now); len(b.by) >= maxBreakers {
			clear(b.by)
		}
	}
	made := gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name: name, MaxRequests: 1, Timeout: retryAfter, IsExcluded: notItsFault,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		OnStateChange: func(name string, from, to gobreaker.State) {
			if to != gobreaker.StateHalfOpen && (from != gobreaker.StateHalfOpen || to == gobreaker.StateClosed) {
				b.turned(name, to == gobreaker.StateOpen)
			}
		},
	})
	b.by[key] = &kept{CircuitBreaker: made, used: now}
	return made
}

// forget drops unused breakers. The caller holds the lock.
func (b *breakers) forget(now time.Time) {
	maps.DeleteFunc(b.by, func(_ string, k *kept) bool { return now.Sub(k.used) >= forgetAfter })
}

// states counts the breakers in use by their state.
func (b *breakers) states() map[gobreaker.State]int {
	b.mu.Lock()
	b.forget(b.now())
	all := slices.Collect(maps.Values(b.by))
	b.mu.Unlock()
	out := map[gobreaker.State]int{gobreaker.StateClosed: 0, gobreaker.StateHalfOpen: 0, gobreaker.StateOpen: 0}
	for _, k := range all {
		out[k.State()]++
	}
	return out
}

// notItsFault reports whether an error says nothing about the upstream's health. An error response that
// names another service as unavailable does not.
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

// said reports whether an error has a message for users: error responses have one, connection errors do
// not.
func said(err error) bool { return errs.MessageOf(err) != errs.MessageOf(nil) }

// through calls f through the breaker of key. name is the upstream's name in messages.
func through[T any](b *breakers, key, name string, f func() (T, error)) (T, error) {
	v, err := b.of(key, name).Execute(func() (any, error) {
		got, err := f()
		b.count(err)
		return got, err
	})
	got, _ := v.(T)
	return got, inWords(name, err)
}

// count reports a call that failed because of the upstream.
func (b *breakers) count(err error) {
	if err != nil && !notItsFault(err) {
		b.failed()
	}
}

// beside calls f, which may take minutes, unless the breaker of key is open. The breaker learns only
// whether f was answered, because any other result would come too late. f is never the breaker's
// trial call, which would block all other calls meanwhile.
func beside[T any](b *breakers, key, name string, f func() (T, error)) (T, error) {
	one := b.of(key, name)
	if one.State() == gobreaker.StateOpen {
		var none T
		return none, inWords(name, gobreaker.ErrOpenState)
	}
	got, err := f()
	b.count(err)
	if unanswered := errors.Is(err, errSilent); (unanswered || err == nil) && one.State() == gobreaker.StateClosed {
		_, _ = one.Execute(func() (any, error) { return nil, err })
	}
	return got, inWords(name, err)
}

// inWords adds the upstream's name to errors without a message for users.
func inWords(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests), errs.Is(err, errs.Unavailable) && !said(err):
		return &errs.Error{Kind: errs.Unavailable, Message: name + " does not answer now: retry in a moment", Err: err}
	case errs.Is(err, errs.Unauthenticated), errs.Is(err, errs.Denied) && errs.FieldOf(err) == "": // it refused the gateway; with a field, it refused the caller's request
		return &errs.Error{
			Kind: errs.Unavailable, Err: err,
			Message: name + " refused the gateway: give all services the same cluster secret",
		}
	}
	return err
}

// NotDone reports whether a failed call certainly had no effect: there was no upstream, the call was
// not made, there was no connection, or the response was a refusal.
func NotDone(err error) bool {
	if errors.Is(err, errAway) || errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return true
	}
	if broken, ok := errors.AsType[*net.OpError](err); ok {
		return broken.Op == "dial"
	}
	for e, ok := errors.AsType[*errs.Error](err); ok; e, ok = errors.AsType[*errs.Error](e.Err) {
		if refused(e.Kind) { // it may be wrapped: see inWords
			return true
		}
	}
	return false
}

// refused reports whether an error response of a Kind means that nothing was done.
func refused(k errs.Kind) bool {
	switch k {
	case errs.Malformed, errs.Invalid, errs.NotFound, errs.AlreadyExists, errs.Conflict, errs.Exhausted, errs.TooLarge,
		errs.Unauthenticated, errs.Denied:
		return true
	case errs.Internal, errs.Fenced, errs.Unavailable, errs.Canceled:
		return false
	}
	return false
}
