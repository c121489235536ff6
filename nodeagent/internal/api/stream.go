package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/supervise"
)

const (
	// aliveEvery is the pause between empty frames on a silent stream, which tell its
	// reader that the agent is there.
	aliveEvery = 10 * time.Second
	// writeTimeout is how long one frame may be stuck.
	writeTimeout = 30 * time.Second
)

// follow serves an instance's output from an offset on, or its last lines, and what
// comes until the instance ends: one JSON frame a line.
func follow(all Instances) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := all.Instance(instanceID(r))
		if err != nil {
			encodeError(r.Context(), err, w)
			return
		}
		path := all.LogPath(instanceID(r))
		offset, err := begin(r, path)
		if err != nil {
			encodeError(r.Context(), err, w)
			return
		}
		logs := all.Logs()
		watch := logs.Follow(path)
		defer watch.Close()
		viewer := console.NewViewer(path, offset)
		defer viewer.Close()
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Time{}) // nothing more is read
		w.Header().Set("Content-Type", "application/x-ndjson")
		s := stream{i: i, watch: watch, viewer: viewer, begin: offset, closed: logs.Closed(), rc: rc, out: json.NewEncoder(w)}
		_ = s.serve(r.Context()) // whoever reads has gone, or reads that the stream broke off
	})
}

// begin is the offset a stream is to begin at.
func begin(r *http.Request, path string) (int64, error) {
	q := r.URL.Query()
	if q.Has("offset") {
		return number(q.Get("offset"), "offset", 0)
	}
	lines, err := number(q.Get("lines"), "lines", 0)
	if err != nil {
		return 0, err
	}
	return console.Start(path, int(min(lines, console.MaxLines)))
}

// stream is one open stream.
type stream struct {
	i      *supervise.Instance
	watch  *console.Watch
	viewer *console.Viewer
	begin  int64
	closed <-chan struct{}
	rc     *http.ResponseController
	out    *json.Encoder
	pace   console.Pace
}

// serve writes until the instance ends, the reader goes or the agent does.
func (s *stream) serve(ctx context.Context) error {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	if err := s.write(client.Frame{From: s.begin, Next: s.begin}); err != nil { // the head goes out at once
		return err
	}
	for {
		changed := s.watch.Changed()
		live := s.i.Live() // looked at before the log: what it printed at the end is read, then
		ended := live.Status.State.Terminal()
		p, err := s.viewer.Next(ended)
		if err != nil {
			return err
		}
		if p.Next > p.From {
			if err := s.piece(ctx, p); err != nil {
				return err
			}
			continue
		}
		if ended {
			return s.write(client.Frame{From: p.From, Next: p.Next, End: endOf(live.Status)})
		}
		select {
		case <-changed:
		case <-alive.C:
			err = s.write(client.Frame{From: p.From, Next: p.Next})
		case <-s.closed:
			return nil
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// piece writes a piece and, once the reader is up to date, keeps to its pace.
func (s *stream) piece(ctx context.Context, p console.Piece) error {
	f := client.Frame{Data: p.Data, From: p.From, Next: p.Next}
	if p.Skipped {
		f.Skipped = &client.Skipped{Lines: p.Lines}
	}
	if err := s.write(f); err != nil || !s.viewer.Live() {
		return err
	}
	wait := s.pace.Spend(len(p.Data), time.Now())
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.closed:
	case <-ctx.Done():
	}
	return errs.New(errs.Canceled, "the stream is to end")
}

func (s *stream) write(f client.Frame) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := s.out.Encode(f); err != nil {
		return err
	}
	return s.rc.Flush()
}

func endOf(s fleet.Status) *client.End {
	e := &client.End{State: s.State, Reason: s.Reason, Message: s.Message, Generation: s.Generation}
	if s.Exit != nil && s.Exit.Known {
		e.ExitCode = &s.Exit.Code
	}
	return e
}
