package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// RecordQuery selects records of the agent's own log.
type RecordQuery struct {
	telemetry.RecordFilter
	// Limit is the number of last records; 0 for none.
	Limit int
	// After is the number of the record after which a stream continues; 0 begins with the last
	// Limit records.
	After int64
}

func (q RecordQuery) values() string {
	v := url.Values{"level": {q.Level}, "logger": {q.Logger}, "limit": {strconv.Itoa(q.Limit)}}
	if q.After > 0 {
		v.Set("after", strconv.FormatInt(q.After, 10))
	}
	return v.Encode()
}

// Records are the last records of the agent's own log, oldest first.
type Records struct {
	Records []telemetry.Record `json:"records"`
	// Size is the number of stored records, and Capacity its limit.
	Size     int `json:"size"`
	Capacity int `json:"capacity"`
}

// RecordFrame is a message of a stream of the agent's log. Without records it is a keep-alive,
// which is sent at least every ten seconds.
type RecordFrame struct {
	Records []telemetry.Record `json:"records,omitempty"`
	// Gap is true if records before these are missing; see telemetry.Follower.
	Gap bool `json:"gap,omitempty"`
}

// Records reads the last records of the agent's own log. Malformed if the filter is invalid.
func (c *Client) Records(ctx context.Context, q RecordQuery) (Records, error) {
	var r Records
	err := c.do(ctx, http.MethodGet, "/v1/logs?"+q.values(), nil, &r)
	return r, errs.Wrap("nodeagent.Records", err)
}

// FollowRecords streams the agent's own log until ctx or the agent ends. The http client must
// have no timeout.
func (c *Client) FollowRecords(ctx context.Context, q RecordQuery) (*Stream[RecordFrame], error) {
	s, err := stream[RecordFrame](ctx, c, "/v1/logs/stream?"+q.values())
	return s, errs.Wrap("nodeagent.FollowRecords", err)
}
