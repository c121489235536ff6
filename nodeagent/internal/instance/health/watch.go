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

// Verdict is the result of a watch.
type Verdict struct {
	Unhealthy bool
	// Why is a sentence that says why a server is unhealthy.
	Why string
}

// Watch checks a server that was ready and calls onChange with every change of the verdict, until
// ctx ends. The first verdict is healthy. reachable reports whether a heartbeat could arrive now.
func Watch(ctx context.Context, s Server, l fleet.Liveness, reachable func(context.Context) bool, onChange func(Verdict)) {
	switch l.Type {
	case fleet.CheckNone, fleet.CheckLog, fleet.CheckAny, "":
		return
	case fleet.CheckHeartbeat:
		s.watchHeartbeats(ctx, l, reachable, onChange)
		return
	case fleet.CheckPort, fleet.CheckUDP, fleet.CheckHTTP, fleet.CheckMinecraft, fleet.CheckBedrock, fleet.CheckA2S:
	}
	t := tally{failures: cmp.Or(l.Failures, fleet.DefaultFailures), successes: cmp.Or(l.Successes, 1)}
	timeout := l.Timeout()
	s.every(ctx, l.Interval(), func() {
		err := s.ask(ctx, l.Check, timeout)
		if ctx.Err() != nil || !t.add(err == nil) {
			return
		}
		if !t.unhealthy {
			onChange(Verdict{})
			return
		}
		why := errs.MessageOf(err)
		if t.failures > 1 {
			why = fmt.Sprintf("%s, %d times in a row", why, t.failures)
		}
		onChange(Verdict{Unhealthy: true, Why: why})
	})
}

// WatchPlayers queries a server's number of players until ctx ends. It ignores errors.
func WatchPlayers(ctx context.Context, s Server, c fleet.Check) {
	s.every(ctx, fleet.DefaultInterval, func() { _ = s.ask(ctx, c, answerTimeout) })
}

// every calls do at an interval. The first pause is shorter and random, so that servers that
// were started together are not probed together.
func (s Server) every(ctx context.Context, interval time.Duration, do func()) {
	wait := interval/2 + time.Duration(rand.Int64N(int64(interval/2)+1))
	for pause.For(ctx, wait) {
		do()
		wait = interval
	}
}

// watchHeartbeats watches a server by its heartbeats.
func (s Server) watchHeartbeats(ctx context.Context, l fleet.Liveness, reachable func(context.Context) bool, onChange func(Verdict)) {
	limit := l.Interval()
	for {
		since, err := s.Heartbeats.awaitSilence(ctx, limit, reachable)
		if err != nil {
			return
		}
		onChange(Verdict{Unhealthy: true, Why: fmt.Sprintf("it has sent no heartbeat for %v", limit)})
		if s.Heartbeats.awaitBeat(ctx, since) != nil {
			return
		}
		onChange(Verdict{})
	}
}
