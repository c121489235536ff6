package console

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// maxWaiting is the length of the queue for a slow agent.
	maxWaiting = 64
	// typeOut limits the time for typing queued lines after the client has disconnected.
	typeOut = 5 * time.Second
)

// typist types queued lines in order, in the background. A slow agent therefore does not delay
// the client's pings.
type typist struct {
	send func(ctx context.Context, line string) error
	// complain tells the client why a line was not typed.
	complain func(err error)

	lines   chan string
	stop    context.CancelFunc
	running sync.WaitGroup
}

// begin starts typing until end is called or ctx ends.
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

// add queues a line. It returns Exhausted if the queue is full.
func (t *typist) add(line string) error {
	select {
	case t.lines <- line:
		return nil
	default:
		return errs.New(errs.Exhausted, "the line was not typed: %d other lines wait for the node's agent, which is slow; send it again in a moment", maxWaiting)
	}
}

// end types the queued lines, for at most typeOut, and returns when typing has ended.
func (t *typist) end() {
	close(t.lines)
	late := time.AfterFunc(typeOut, t.stop)
	t.running.Wait()
	late.Stop()
	t.stop()
}
