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
	"github.com/orreryhq/orrery/nodeagent/internal/ansi"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
)

const (
	// answerTime is how long a server has to answer where its group cannot say.
	answerTime = fleet.DefaultTimeout
	// The pause between two questions grows from firstPause to fewPause, and for a server
	// that takes long to a tenth of what it has taken, up to longPause.
	firstPause = 500 * time.Microsecond
	fewPause   = 250 * time.Millisecond
	longPause  = 2 * time.Second
	// chunk is how much of a log is read at a time.
	chunk = 256 << 10
)

// AwaitReady returns nil once the check is passed, else ctx's error. Invalid when it
// can never be.
func AwaitReady(ctx context.Context, s Server, c fleet.Check) error {
	switch c.Type {
	case fleet.CheckNone, "":
		return nil
	case fleet.CheckLog:
		return s.awaitLine(ctx, c)
	case fleet.CheckHeartbeat:
		s.Unready("it has not said that it is ready")
		return s.Pulse.awaitReady(ctx)
	case fleet.CheckAny:
		return s.awaitAny(ctx)
	case fleet.CheckPort, fleet.CheckUDP, fleet.CheckHTTP, fleet.CheckMinecraft, fleet.CheckBedrock, fleet.CheckA2S:
	}
	return s.awaitAnswer(ctx, c)
}

// awaitAny waits until the server says that it is ready or answers its ping.
func (s Server) awaitAny(ctx context.Context) error {
	within, stop := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		if s.Pulse.awaitReady(within) == nil {
			stop()
		}
	})
	tell := s.Unready
	s.Unready = func(why string) { tell("it has not said that it is ready, and " + why) }
	err := s.awaitAnswer(within, s.Ping)
	stop()
	listening.Wait()
	if _, ready, _ := s.Pulse.look(); ready {
		return nil
	}
	return err
}

// awaitAnswer asks until the answer is the one that is expected.
func (s Server) awaitAnswer(ctx context.Context, c fleet.Check) error {
	begun, wait, last := time.Now(), firstPause, ""
	for {
		err := s.ask(ctx, c, answerTime)
		switch {
		case ctx.Err() != nil:
			return errs.Wrap("health.AwaitReady", ctx.Err())
		case err == nil:
			return nil
		}
		if why := errs.MessageOf(err); why != last {
			last = why
			s.Unready(why)
		}
		if !pause.For(ctx, wait) {
			return errs.Wrap("health.AwaitReady", ctx.Err())
		}
		wait = longer(wait, time.Since(begun))
	}
}

// longer is the pause after another one, when so much time has passed in all.
func longer(wait, passed time.Duration) time.Duration {
	return min(wait+wait/4+1, max(fewPause, min(passed/10, longPause)))
}

// awaitLine reads what the run prints until a finished line matches, as if there were
// no colours.
func (s Server) awaitLine(ctx context.Context, c fleet.Check) error {
	pattern, err := pattern(c)
	if err != nil {
		return errs.Wrap("health.AwaitReady", err)
	}
	s.Unready(fmt.Sprintf("no line of its console matches %q", c.Pattern))
	watch := s.Logs.Follow(s.Log)
	defer watch.Close()
	lines := lineReader{path: s.Log, offset: s.LogFrom}
	for ctx.Err() == nil {
		news := watch.Changed() // taken before looking
		found, more, err := lines.find(pattern)
		switch {
		case err != nil:
			s.Unready(errs.MessageOf(err))
			pause.For(ctx, fewPause)
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

// lineReader reads a log's finished lines once each.
type lineReader struct {
	path   string
	offset int64
	// begun is the part of a line that is not finished; no more of it than a page of the
	// console would hold.
	begun []byte
}

// find looks at what was printed since. more is true when there is more to look at.
func (r *lineReader) find(pattern *regexp.Regexp) (found, more bool, err error) {
	data, next, err := console.Read(r.path, r.offset, chunk)
	if err != nil || len(data) == 0 {
		return false, false, err
	}
	if next-int64(len(data)) != r.offset { // something between was given back: a line's head is no line
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
