package health

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
)

// Verdict is what a watch has come to.
type Verdict struct {
	Sick bool
	// Why is a sentence about a sick one.
	Why string
}

// Watch asks a server that was ready whether it still serves, and tells every change
// of the verdict, until ctx ends; it is well to begin with. open says whether what a
// server says of itself could arrive now.
func Watch(ctx context.Context, s Server, l fleet.Liveness, open func(context.Context) bool, tell func(Verdict)) {
	switch l.Type {
	case fleet.CheckNone, fleet.CheckLog, fleet.CheckAny, "":
		return
	case fleet.CheckHeartbeat:
		s.listen(ctx, l, open, tell)
		return
	case fleet.CheckPort, fleet.CheckUDP, fleet.CheckHTTP, fleet.CheckMinecraft, fleet.CheckBedrock, fleet.CheckA2S:
	}
	t := tally{failures: cmp.Or(l.Failures, fleet.DefaultFailures), successes: cmp.Or(l.Successes, 1)}
	timeout := l.Timeout()
	s.each(ctx, l.Interval(), func() {
		err := s.ask(ctx, l.Check, timeout)
		if ctx.Err() != nil || !t.hear(err == nil) {
			return
		}
		if !t.sick {
			tell(Verdict{})
			return
		}
		why := errs.MessageOf(err)
		if t.failures > 1 {
			why = fmt.Sprintf("%s, %d times in a row", why, t.failures)
		}
		tell(Verdict{Sick: true, Why: why})
	})
}

// Census asks a server for its players until ctx ends; nothing follows from one that
// does not answer.
func Census(ctx context.Context, s Server, c fleet.Check) {
	s.each(ctx, fleet.DefaultInterval, func() { _ = s.ask(ctx, c, answerTime) })
}

// each does something at an interval. The first time comes sooner, so that servers
// that were started together are not asked together.
func (s Server) each(ctx context.Context, interval time.Duration, do func()) {
	wait := interval/2 + time.Duration(rand.Int64N(int64(interval/2)+1))
	for pause.For(ctx, wait) {
		do()
		wait = interval
	}
}

// listen watches a server by what it says of itself.
func (s Server) listen(ctx context.Context, l fleet.Liveness, open func(context.Context) bool, tell func(Verdict)) {
	limit := l.Interval()
	for {
		since, err := s.Pulse.silence(ctx, limit, open)
		if err != nil {
			return
		}
		tell(Verdict{Sick: true, Why: fmt.Sprintf("it has said nothing of itself for %v", limit)})
		if s.Pulse.spoken(ctx, since) != nil {
			return
		}
		tell(Verdict{})
	}
}
