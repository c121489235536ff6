package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// RecordQuery asks for records of the agent's own log.
type RecordQuery struct {
	telemetry.RecordFilter
	// Limit is how many of the last ones; 0 for none.
	Limit int
	// After is the number that a stream goes on after; 0 begins with the last Limit.
	After int64
}

func (q RecordQuery) values() string {
	v := url.Values{"level": {q.Level}, "logger": {q.Logger}, "limit": {strconv.Itoa(q.Limit)}}
	if q.After > 0 {
		v.Set("after", strconv.FormatInt(q.After, 10))
	}
	return v.Encode()
}

// Records are the last records of the agent's own log, the oldest first.
type Records struct {
	Records []telemetry.Record `json:"records"`
	// Size is how many records are kept, Capacity how many could be.
	Size     int `json:"size"`
	Capacity int `json:"capacity"`
}

// RecordFrame is one message of the agent's log that is followed; without records it is a
// sign of life, which comes at least every ten seconds.
type RecordFrame struct {
	Records []telemetry.Record `json:"records,omitempty"`
	// Gap is true when records before these are missing; see telemetry.Follower.
	Gap bool `json:"gap,omitempty"`
}

// Records reads the last records of the agent's own log. Malformed when the filter is none.
func (c *Client) Records(ctx context.Context, q RecordQuery) (Records, error) {
	var r Records
	err := wire.Call(ctx, c.http, wire.Request{Method: http.MethodGet, URL: c.base + "/v1/logs?" + q.values(), Token: c.secret}, &r)
	return r, errs.Wrap("nodeagent.Records", err)
}

// FollowRecords streams the agent's own log until ctx ends or the agent goes. The http client
// must have no timeout of its own.
func (c *Client) FollowRecords(ctx context.Context, q RecordQuery) (*Stream[RecordFrame], error) {
	s, err := stream[RecordFrame](ctx, c, "/v1/logs/stream?"+q.values())
	return s, errs.Wrap("nodeagent.FollowRecords", err)
}
