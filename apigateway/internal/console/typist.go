package console

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// maxWaiting is how many lines wait for an agent that is slow to take them.
	maxWaiting = 64
	// typeOut is how long what was typed before the client left is still typed.
	typeOut = 5 * time.Second
)

// typist types lines one after the other, in order, while others are read: an agent
// that is slow to take one does not keep the client's pings from being answered.
type typist struct {
	send func(ctx context.Context, line string) error
	// complain tells the client why a line was not typed.
	complain func(err error)

	lines   chan string
	stop    context.CancelFunc
	running sync.WaitGroup
}

// begin has lines typed until end, or until ctx ends.
func (t *typist) begin(ctx context.Context) {
	t.lines = make(chan string, maxWaiting)
	ctx, t.stop = context.WithCancel(ctx)
	t.running.Go(func() {
		for line := range t.lines {
			if err := t.send(ctx, line); err != nil && ctx.Err() == nil {
				t.complain(err)
			}
		}
	})
}

// add has a line typed. Exhausted when too many wait.
func (t *typist) add(line string) error {
	select {
	case t.lines <- line:
		return nil
	default:
		return errs.New(errs.Exhausted, "the line was not typed: %d others wait for the node's agent, which is slow to take them; send it again in a moment", maxWaiting)
	}
}

// end types what waits, for typeOut at most, and returns when nothing is typed any more.
func (t *typist) end() {
	close(t.lines)
	late := time.AfterFunc(typeOut, t.stop)
	t.running.Wait()
	late.Stop()
	t.stop()
}
