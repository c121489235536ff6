package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

const (
	// keepAliveInterval is the interval of keep-alive frames on a silent stream.
	keepAliveInterval = 10 * time.Second
	// writeTimeout bounds the transmission of a frame.
	writeTimeout = 30 * time.Second
)

// follow streams an instance's output from an offset or the last lines on until the instance
// ends, as one JSON frame per line.
func follow(all Instances) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := all.Instance(instanceID(r))
		if err != nil {
			encodeError(w, err)
			return
		}
		path := all.LogPath(instanceID(r))
		offset, err := begin(r, path)
		if err != nil {
			encodeError(w, err)
			return
		}
		logs := all.Logs()
		watch := logs.Follow(path)
		defer watch.Close()
		viewer := console.NewViewer(path, offset)
		defer viewer.Close()
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Time{}) // the request is read completely
		w.Header().Set("Content-Type", "application/x-ndjson")
		s := stream{i: i, watch: watch, viewer: viewer, begin: offset, closed: logs.Closed(), rc: rc, out: json.NewEncoder(w)}
		_ = s.serve(r.Context()) // on an error the caller is gone or sees an interrupted stream
	})
}

// begin is the offset at which a stream begins.
func begin(r *http.Request, path string) (int64, error) {
	q := r.URL.Query()
	if q.Has("offset") {
		return number(q.Get("offset"), "offset", 0)
	}
	lines, err := number(q.Get("lines"), "lines", 0)
	if err != nil {
		return 0, err
	}
	return console.Start(r.Context(), path, int(min(lines, console.MaxLines)))
}

// stream is a stream of an instance's output.
type stream struct {
	i      *driver.Instance
	watch  *console.Subscription
	viewer *console.Viewer
	begin  int64
	closed <-chan struct{}
	rc     *http.ResponseController
	out    *json.Encoder
	pace   console.Pace
}

// serve writes until the instance or the agent ends, or the caller is gone.
func (s *stream) serve(ctx context.Context) error {
	alive := time.NewTicker(keepAliveInterval)
	defer alive.Stop()
	if err := s.write(client.Frame{From: s.begin, Next: s.begin}); err != nil { // sends the header at once
		return err
	}
	for {
		changed := s.watch.Changed()
		live := s.i.Live() // before the log, so that the last output of an ended run is read
		ended := live.Status.State.Terminal()
		frame, err := s.viewer.Next(ended)
		if err != nil {
			return err
		}
		if frame.Next > frame.From {
			if err := s.send(ctx, frame); err != nil {
				return err
			}
			continue
		}
		if ended {
			frame.End = endOf(live.Status)
			return s.write(frame)
		}
		select {
		case <-changed:
		case <-alive.C:
			err = s.write(frame)
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

// send writes a frame and limits the rate of a live reader.
func (s *stream) send(ctx context.Context, f client.Frame) error {
	if err := s.write(f); err != nil || !s.viewer.Live() {
		return err
	}
	wait := s.pace.Spend(len(f.Data), time.Now())
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
	return errs.New(errs.Canceled, "the stream has ended")
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
