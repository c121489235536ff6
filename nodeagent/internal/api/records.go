package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxRecords bounds the records of the agent's log in an answer.
const maxRecords = 1000

// readRecords returns the last records of the agent's own log.
func readRecords(ring *telemetry.Ring) http.Handler {
	return Serve(func(r *http.Request) (any, error) {
		q, err := recordQuery(r.URL.Query())
		if err != nil {
			return nil, err
		}
		return client.Records{Records: ring.Last(q.RecordFilter, q.Limit), Size: ring.Size(), Capacity: ring.Capacity()}, nil
	})
}

func recordQuery(v url.Values) (q client.RecordQuery, err error) {
	if q.RecordFilter, err = telemetry.ParseRecordFilter(v.Get("level"), v.Get("logger")); err != nil {
		return q, err
	}
	limit, err := number(v.Get("limit"), "limit", 0)
	if err != nil {
		return q, err
	}
	q.Limit = int(min(limit, maxRecords))
	q.After, err = number(v.Get("after"), "after", 0)
	return q, err
}

// followRecords streams the agent's own log, from its last records or from a number on, as one
// JSON frame per line. closed ends all streams.
func followRecords(ring *telemetry.Ring, closed <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := recordQuery(r.URL.Query())
		if err != nil {
			encodeError(w, err)
			return
		}
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Time{}) // the request is read completely
		w.Header().Set("Content-Type", "application/x-ndjson")
		ctx, cancel := context.WithCancel(r.Context())
		var watching sync.WaitGroup
		watching.Go(func() {
			select {
			case <-closed:
				cancel()
			case <-ctx.Done():
			}
		})
		defer watching.Wait()
		defer cancel()
		s := records{from: ring.Follow(q.RecordFilter, q.After, q.Limit), rc: rc, out: json.NewEncoder(w)}
		_ = s.serve(ctx) // on an error the caller is gone or sees an interrupted stream
	})
}

// records is a stream of the agent's log.
type records struct {
	from *telemetry.Follower
	rc   *http.ResponseController
	out  *json.Encoder
}

// serve writes until the caller is gone or does not read, or the agent ends.
func (s *records) serve(ctx context.Context) error {
	if err := s.write(client.RecordFrame{}); err != nil { // sends the header at once
		return err
	}
	for {
		some, gap, err := s.from.Next(ctx, keepAliveInterval)
		if err != nil {
			return err
		}
		if err := s.write(client.RecordFrame{Records: some, Gap: gap}); err != nil {
			return err
		}
	}
}

func (s *records) write(f client.RecordFrame) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := s.out.Encode(f); err != nil {
		return err
	}
	return s.rc.Flush()
}
