package health

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ansi"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
)

const (
	// answerTimeout is how long a server has to answer if its group sets no timeout.
	answerTimeout = fleet.DefaultTimeout
	// The pause between two probes grows from firstPause to shortPause. For a server that starts
	// slowly it grows to a tenth of the time passed, up to longPause.
	firstPause = 500 * time.Microsecond
	shortPause = 250 * time.Millisecond
	longPause  = 2 * time.Second
	// chunk is the size in which a log is read.
	chunk = 256 << 10
)

// AwaitReady returns nil once the check passes, or ctx's error. Invalid if it can never pass.
func AwaitReady(ctx context.Context, s Server, c fleet.Check) error {
	switch c.Type {
	case fleet.CheckNone, "":
		return nil
	case fleet.CheckLog:
		return s.awaitLine(ctx, c)
	case fleet.CheckHeartbeat:
		s.OnUnready("it has not reported that it is ready")
		return s.Heartbeats.awaitReady(ctx)
	case fleet.CheckAny:
		return s.awaitAny(ctx)
	case fleet.CheckPort, fleet.CheckUDP, fleet.CheckHTTP, fleet.CheckMinecraft, fleet.CheckBedrock, fleet.CheckA2S:
	}
	return s.awaitAnswer(ctx, c)
}

// awaitAny waits until the server reports that it is ready or answers its ping.
func (s Server) awaitAny(ctx context.Context) error {
	within, stop := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		if s.Heartbeats.awaitReady(within) == nil {
			stop()
		}
	})
	onUnready := s.OnUnready
	s.OnUnready = func(why string) { onUnready("it has not reported that it is ready, and " + why) }
	err := s.awaitAnswer(within, s.Ping)
	stop()
	listening.Wait()
	if _, ready, _ := s.Heartbeats.state(); ready {
		return nil
	}
	return err
}

// awaitAnswer repeats a probe until it succeeds.
func (s Server) awaitAnswer(ctx context.Context, c fleet.Check) error {
	begun, wait, last := time.Now(), firstPause, ""
	for {
		err := s.ask(ctx, c, answerTimeout)
		switch {
		case ctx.Err() != nil:
			return errs.Wrap("health.AwaitReady", ctx.Err())
		case err == nil:
			return nil
		}
		if why := errs.MessageOf(err); why != last {
			last = why
			s.OnUnready(why)
		}
		if !pause.For(ctx, wait) {
			return errs.Wrap("health.AwaitReady", ctx.Err())
		}
		wait = nextPause(wait, time.Since(begun))
	}
}

// nextPause is the pause after another one, when the wait has taken passed so far.
func nextPause(wait, passed time.Duration) time.Duration {
	return min(wait+wait/4+1, max(shortPause, min(passed/10, longPause)))
}

// awaitLine reads the run's output until a complete line, without its colours, matches.
func (s Server) awaitLine(ctx context.Context, c fleet.Check) error {
	pattern, err := pattern(c)
	if err != nil {
		return errs.Wrap("health.AwaitReady", err)
	}
	s.OnUnready(fmt.Sprintf("no line of its console matches %q", c.Pattern))
	watch := s.Logs.Follow(s.Log)
	defer watch.Close()
	lines := lineReader{path: s.Log, offset: s.LogFrom}
	for ctx.Err() == nil {
		news := watch.Changed() // before reading
		found, more, err := lines.find(pattern)
		switch {
		case err != nil:
			s.OnUnready(errs.MessageOf(err))
			pause.For(ctx, shortPause)
			continue
		case found:
			return nil
		case more:
			continue
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return errs.Wrap("health.AwaitReady", ctx.Err())
}

// lineReader reads each complete line of a log once.
type lineReader struct {
	path   string
	offset int64
	// begun is the unfinished line, at most console.MaxLine bytes of it.
	begun []byte
}

// find searches what was written since the last call. more is true if there is more to read.
func (r *lineReader) find(pattern *regexp.Regexp) (found, more bool, err error) {
	data, next, err := console.Read(r.path, r.offset, chunk)
	if err != nil || len(data) == 0 {
		return false, false, err
	}
	if next-int64(len(data)) != r.offset { // a part was discarded: begun has no continuation
		r.begun = nil
	}
	r.offset = next
	for {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if room := console.MaxLine - len(r.begun); len(line) > room {
			line = line[:max(0, room)]
		}
		r.begun = append(r.begun, line...)
		if !whole {
			return false, true, nil
		}
		if pattern.MatchString(ansi.Strip(string(bytes.TrimSuffix(r.begun, []byte{'\r'})))) {
			return true, false, nil
		}
		r.begun, data = r.begun[:0], rest
	}
}
