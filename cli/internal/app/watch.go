package app

import (
	"context"
	"sync"

	orrery "github.com/orreryhq/orrery/sdk"
)

// eventBuffer is how many events wait for a command that is busy.
const eventBuffer = 256

// Watch subscribes to events and returns when the stream has begun, so that no change after a following read is
// missed. The channel is closed when the stream ends; then stop returns why. The caller calls stop, once or more.
func Watch(ctx context.Context, client *orrery.Client, o orrery.EventsOptions) (events <-chan orrery.Event, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	connected, onConnect := make(chan struct{}, 1), o.OnConnect
	o.OnConnect = func() {
		select {
		case connected <- struct{}{}:
		default:
		}
		if onConnect != nil {
			onConnect()
		}
	}
	out, failed := make(chan orrery.Event, eventBuffer), make(chan error, 1)
	go func() {
		defer close(out)
		for event, err := range client.Events(ctx, o) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case out <- event:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	select {
	case <-connected:
		return out, sync.OnceValue(func() error { cancel(); return <-failed }), nil
	case err := <-failed:
		cancel()
		return nil, nil, err
	}
}

// Drain returns the events that have arrived already, so that an object that changes often is read
// once.
func Drain(events <-chan orrery.Event) []orrery.Event {
	var out []orrery.Event
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return out
			}
			out = append(out, event)
		default:
			return out
		}
	}
}
