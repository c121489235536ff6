package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Frame is one message of a followed console: output, a note that some was left out,
// the instance's end, or nothing but a sign of life.
type Frame struct {
	// Data is output from offset From up to offset Next: whole lines, but for one longer
	// than 64 KiB, which comes in parts, and the last of an instance that ended.
	Data []byte `json:"data,omitempty"`
	From int64  `json:"from"`
	Next int64  `json:"next"`
	// Skipped is set where what lies between From and Next was left out.
	Skipped *Skipped `json:"skipped,omitempty"`
	// End is set in the last frame.
	End *End `json:"end,omitempty"`
}

// Skipped tells what was left out.
type Skipped struct {
	// Lines is how many; 0 when they are no longer kept and nobody knows.
	Lines int64 `json:"lines"`
}

// End tells why nothing more comes.
type End struct {
	State      fleet.State  `json:"state"`
	Reason     fleet.Reason `json:"reason"`
	Message    string       `json:"message,omitempty"`
	Generation int64        `json:"generation,omitempty"`
	// ExitCode is nil when no process ran.
	ExitCode *int `json:"exitCode,omitempty"`
}

// Place is where a stream of output begins.
type Place struct {
	// Offset is a byte offset; negative means Lines before the end.
	Offset int64
	Lines  int
}

// Follow streams an instance's output from a place on until ctx ends, the instance
// ends or the agent goes. NotFound when the node does not have it. The http client
// must have no timeout of its own.
func (c *Client) Follow(ctx context.Context, id fleet.InstanceID, at Place) (*Stream[Frame], error) {
	q := "lines=" + strconv.Itoa(at.Lines)
	if at.Offset >= 0 {
		q = "offset=" + strconv.FormatInt(at.Offset, 10)
	}
	s, err := stream[Frame](ctx, c, "/v1/instances/"+url.PathEscape(string(id))+"/log/stream?"+q)
	return s, errs.Wrap("nodeagent.Follow", err)
}
