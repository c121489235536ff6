package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Frame is a message of a console stream: output, a note that output was skipped, the
// instance's end, or nothing as a keep-alive.
type Frame struct {
	// Data is the output from offset From to offset Next. It consists of whole lines, except
	// for the parts of a line longer than 64 KiB, and the last line of an instance that ended.
	Data []byte `json:"data,omitempty"`
	From int64  `json:"from"`
	Next int64  `json:"next"`
	// Skipped is set if the output from From to Next was skipped.
	Skipped *Skipped `json:"skipped,omitempty"`
	// End is set in the last frame.
	End *End `json:"end,omitempty"`
}

// Skipped describes skipped output.
type Skipped struct {
	// Lines is the number of skipped lines; 0 if unknown because they were discarded.
	Lines int64 `json:"lines"`
}

// End is the reason why the stream ends.
type End struct {
	State      fleet.State  `json:"state"`
	Reason     fleet.Reason `json:"reason"`
	Message    string       `json:"message,omitempty"`
	Generation int64        `json:"generation,omitempty"`
	// ExitCode is nil if no process ran.
	ExitCode *int `json:"exitCode,omitempty"`
}

// Place is the start of a stream of output.
type Place struct {
	// Offset is a byte offset; negative means Lines before the end.
	Offset int64
	Lines  int
}

// Follow streams an instance's output from a place on until ctx, the instance or the agent
// ends. NotFound if the node does not have the instance. The http client must have no timeout.
func (c *Client) Follow(ctx context.Context, id fleet.InstanceID, at Place) (*Stream[Frame], error) {
	q := "lines=" + strconv.Itoa(at.Lines)
	if at.Offset >= 0 {
		q = "offset=" + strconv.FormatInt(at.Offset, 10)
	}
	s, err := stream[Frame](ctx, c, "/v1/instances/"+url.PathEscape(string(id))+"/log/stream?"+q)
	return s, errs.Wrap("nodeagent.Follow", err)
}
