package console

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	minRetry = 50 * time.Millisecond
	maxRetry = 2 * time.Second
	// aliveEvery is the interval of keep-alives while there is no output.
	aliveEvery = 10 * time.Second
	// settled is how long a stream without output must last to reset the retry delay.
	settled = 5 * time.Second
)

// sink is a client's view of a console. An error means that the client has disconnected.
type sink interface {
	// frame sends output, a note or the end. An empty frame is a keep-alive.
	frame(f client.Frame) error
	// waiting sends the reason why there is no output now.
	waiting(message string) error
}

// feed sends an instance's console from a position on, until the instance ends, the client
// disconnects or ctx ends. An error means that the client has disconnected.
func (s *Streams) feed(ctx context.Context, id fleet.InstanceID, at client.Place, out sink) error {
	retry, told := minRetry, ""
	for ctx.Err() == nil {
		changed := s.cfg.Changes.Next()
		i, known := s.cfg.View.Snapshot().Instances.Get(id)
		if !known {
			return out.frame(ending(at, client.End{Message: "the record of the instance is gone"}))
		}
		t := s.follow(ctx, i, &at, out)
		switch {
		case t.done:
			return t.err
		case i.Terminal() && (errs.Is(t.err, errs.NotFound) || errs.Is(t.err, errs.Conflict)): // the node has no output of it
			return out.frame(ending(at, endOf(i)))
		case t.worked:
			retry, told = minRetry, ""
		}
		unplaced := errs.Is(t.err, errs.Conflict)
		if message := errs.MessageOf(t.err); message != told && (unplaced || retry > minRetry) {
			told = message
			if err := out.waiting(message); err != nil {
				return err
			}
		}
		pause := retry
		if unplaced { // wait for a change
			pause = aliveEvery
		}
		if err := rest(ctx, pause, unplaced, changed, out); err != nil {
			return err
		}
		retry = min(2*retry, maxRetry)
	}
	return nil
}

// attempt is the result of one agent's stream.
type attempt struct {
	// done is true if the stream is complete. In that case err is the client's error, else the agent's.
	done bool
	// worked is true if the agent sent output or the stream lasted for a while. Otherwise feed
	// backs off, in case the agent ends every stream at once.
	worked bool
	err    error
}

// follow sends the output of one agent's stream and advances the position.
func (s *Streams) follow(ctx context.Context, i *fleet.Instance, at *client.Place, out sink) (t attempt) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := s.cfg.Operations.Follow(ctx, i, *at)
	if err != nil {
		return attempt{err: err}
	}
	defer in.Close()
	began := time.Now()
	for {
		f, err := in.Next()
		if ctx.Err() != nil {
			return attempt{done: true}
		}
		if err != nil {
			t.worked = t.worked || time.Since(began) >= settled
			return attempt{worked: t.worked, err: err}
		}
		t.worked, at.Offset = t.worked || f.Next > f.From, f.Next
		s.count(f)
		if err := out.frame(f); err != nil || f.End != nil {
			return attempt{done: true, err: err}
		}
	}
}

// rest waits before the next attempt. With forChange it also returns on a change. After a full
// pause it sends a keep-alive.
func rest(ctx context.Context, pause time.Duration, forChange bool, changed <-chan struct{}, out sink) error {
	if !forChange {
		changed = nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return out.frame(client.Frame{})
	case <-changed:
	case <-ctx.Done():
	}
	return nil
}

func ending(at client.Place, e client.End) client.Frame {
	return client.Frame{From: max(at.Offset, 0), Next: max(at.Offset, 0), End: &e}
}

func endOf(i *fleet.Instance) client.End {
	e := client.End{State: i.State()}
	if st := i.Status; st != nil {
		e.Reason, e.Message, e.Generation = st.Reason, st.Message, st.Generation
		if st.Exit != nil && st.Exit.Known {
			e.ExitCode = &st.Exit.Code
		}
	}
	return e
}

// lines iterates over a frame's lines without their newlines and trailing CRs, each with the
// offset after it.
func lines(f client.Frame) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		at, data := f.From, f.Data
		for len(data) > 0 {
			line, rest, _ := bytes.Cut(data, []byte{'\n'})
			at += int64(len(data) - len(rest))
			data = rest
			if !yield(at, bytes.TrimSuffix(line, []byte{'\r'})) {
				return
			}
		}
	}
}

// note describes omitted output.
func note(f client.Frame) string {
	switch f.Skipped.Lines {
	case 0:
		return fmt.Sprintf("suppressed %d bytes that are no longer kept", f.Next-f.From)
	case 1:
		return "suppressed 1 line"
	}
	return fmt.Sprintf("suppressed %d lines", f.Skipped.Lines)
}
