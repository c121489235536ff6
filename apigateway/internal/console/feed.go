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
	// aliveEvery is the pause between signs of life while nothing can be shown.
	aliveEvery = 10 * time.Second
	// settled is how long a stream without output must have lasted to count as one that works.
	settled = 5 * time.Second
)

// sink is where a console is shown. An error means that the client is gone.
type sink interface {
	// frame shows output, a note or the end; an empty frame is a sign of life.
	frame(f client.Frame) error
	// waiting tells why nothing can be shown now.
	waiting(message string) error
}

// feed shows an instance's console from a place on until the instance ends, the client
// goes or ctx ends. An error means that the client is gone.
func (s *Streams) feed(ctx context.Context, id fleet.InstanceID, at client.Place, out sink) error {
	retry, told := minRetry, ""
	for ctx.Err() == nil {
		changed := s.cfg.Bell.Next()
		i, known := s.cfg.View.Snapshot().Instances.Get(id)
		if !known {
			return out.frame(ending(at, client.End{Message: "the record of the instance is gone"}))
		}
		t := s.follow(ctx, i, &at, out)
		switch {
		case t.done:
			return t.err
		case i.Terminal() && (errs.Is(t.err, errs.NotFound) || errs.Is(t.err, errs.Conflict)): // its node has nothing of it
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
		if unplaced { // until something changes, and that at most so often
			pause = aliveEvery
		}
		if err := rest(ctx, pause, unplaced, changed, out); err != nil {
			return err
		}
		retry = min(2*retry, maxRetry)
	}
	return nil
}

// turn is how one agent's stream came out.
type turn struct {
	// done is true when nothing more is to be shown; err is the client's then, else the agent's.
	done bool
	// worked is true when the agent showed some output, or stayed for a while: one that ends
	// every stream as soon as it began is not to be asked again at once, for ever.
	worked bool
	err    error
}

// follow shows what one agent's stream brings and moves the place on.
func (s *Streams) follow(ctx context.Context, i *fleet.Instance, at *client.Place, out sink) (t turn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := s.cfg.Operations.Follow(ctx, i, *at)
	if err != nil {
		return turn{err: err}
	}
	defer in.Close()
	began := time.Now()
	for {
		f, err := in.Next()
		if ctx.Err() != nil {
			return turn{done: true}
		}
		if err != nil {
			t.worked = t.worked || time.Since(began) >= settled
			return turn{worked: t.worked, err: err}
		}
		t.worked, at.Offset = t.worked || f.Next > f.From, f.Next
		s.count(f)
		if err := out.frame(f); err != nil || f.End != nil {
			return turn{done: true, err: err}
		}
	}
}

// rest waits before the next try: until something changes when it is for that, with a
// sign of life to the client when it was long.
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

// lines are a frame's lines without their newlines and trailing CRs, each with the
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

// note says what was left out.
func note(f client.Frame) string {
	switch f.Skipped.Lines {
	case 0:
		return fmt.Sprintf("suppressed %d bytes that are no longer kept", f.Next-f.From)
	case 1:
		return "suppressed 1 line"
	}
	return fmt.Sprintf("suppressed %d lines", f.Skipped.Lines)
}
