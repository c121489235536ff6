package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxRecords is how many records of the agent's log are answered at most.
const maxRecords = 1000

// readRecords answers the last records of the agent's own log.
func readRecords(ring *telemetry.Ring) endpoint.Endpoint {
	return func(_ context.Context, request any) (any, error) {
		q := request.(client.RecordQuery)
		return client.Records{Records: ring.Last(q.RecordFilter, q.Limit), Size: ring.Size(), Capacity: ring.Capacity()}, nil
	}
}

func decodeRecords(_ context.Context, r *http.Request) (any, error) {
	return recordQuery(r.URL.Query())
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

// followRecords serves the agent's own log, from its last records or from a number on: one
// JSON frame a line. closed ends all streams.
func followRecords(ring *telemetry.Ring, closed <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := recordQuery(r.URL.Query())
		if err != nil {
			encodeError(r.Context(), err, w)
			return
		}
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Time{}) // nothing more is read
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
		_ = s.serve(ctx) // whoever reads has gone, or reads that the stream broke off
	})
}

// records is one open stream of the agent's log.
type records struct {
	from *telemetry.Follower
	rc   *http.ResponseController
	out  *json.Encoder
}

// serve writes until the reader goes, takes nothing, or the agent ends.
func (s *records) serve(ctx context.Context) error {
	if err := s.write(client.RecordFrame{}); err != nil { // the head goes out at once
		return err
	}
	for {
		some, gap, err := s.from.Next(ctx, aliveEvery)
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
