package upstream

import (
	"context"
	"io"
	"net/http"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// DialAgents returns a function that creates agent clients sharing one connection pool.
func DialAgents(httpClient *http.Client, secret string) func(url string) Agent {
	return func(url string) Agent { return nodeAgent{client.New(httpClient, url, secret)} }
}

// nodeAgent calls an agent over HTTP.
type nodeAgent struct{ client *client.Client }

// Live returns an instance's figures.
func (a nodeAgent) Live(ctx context.Context, id fleet.InstanceID) (Live, error) {
	i, err := a.client.Instance(ctx, id)
	return Live{
		Report: reports.InstanceReport{
			Players: i.Players, MaxPlayers: i.MaxPlayers, PlayersKnown: i.PlayersKnown, TPS: i.TPS, HeartbeatAt: i.LastHeartbeat, Usage: i.Usage,
		},
		PID: i.PID, Attach: i.Attach,
	}, err
}

// Log reads a page.
func (a nodeAgent) Log(ctx context.Context, id fleet.InstanceID, q client.Query) (Log, error) {
	got, err := a.client.Find(ctx, id, q)
	if err != nil {
		return Log{}, err
	}
	out := Log{Total: got.Total, Truncated: got.More, Before: got.Before}
	for _, l := range got.Lines {
		out.Lines = append(out.Lines, Line{Offset: l.Offset, At: l.At, Text: l.Text})
	}
	return out, nil
}

// Output reads on from an offset.
func (a nodeAgent) Output(ctx context.Context, id fleet.InstanceID, offset int64, limit int) (data []byte, next int64, err error) {
	c, err := a.client.Read(ctx, id, offset, limit)
	return c.Data, c.Next, err
}

// Follow streams output.
func (a nodeAgent) Follow(ctx context.Context, id fleet.InstanceID, at client.Place) (*client.Stream[client.Frame], error) {
	return a.client.Follow(ctx, id, at)
}

// Console types a line.
func (a nodeAgent) Console(ctx context.Context, id fleet.InstanceID, line string) error {
	return a.client.WriteLine(ctx, id, line)
}

// RCON gives a command over the server's remote console.
func (a nodeAgent) RCON(ctx context.Context, id fleet.InstanceID, command string) (client.RemoteAnswer, error) {
	return a.client.RCON(ctx, id, command)
}

// Heartbeat passes on what an instance said.
func (a nodeAgent) Heartbeat(ctx context.Context, id fleet.InstanceID, h client.Heartbeat) error {
	return a.client.Heartbeat(ctx, id, h)
}

// Measured reads an instance's figures.
func (a nodeAgent) Measured(ctx context.Context, id fleet.InstanceID) (client.Measured, error) {
	return a.client.Measured(ctx, id)
}

// Export opens an archive of an instance's configuration.
func (a nodeAgent) Export(ctx context.Context, id fleet.InstanceID, prefix string) (io.ReadCloser, error) {
	return a.client.Export(ctx, id, prefix)
}

// Cache returns the node's cached templates.
func (a nodeAgent) Cache(ctx context.Context) (client.Cache, error) { return a.client.Cache(ctx) }

// Warm makes the node download template versions.
func (a nodeAgent) Warm(ctx context.Context, digests []string) (client.WarmAnswer, error) {
	return a.client.Warm(ctx, digests)
}

// Records returns the last records of the agent's own log.
func (a nodeAgent) Records(ctx context.Context, q client.RecordQuery) (client.Records, error) {
	return a.client.Records(ctx, q)
}

// FollowRecords streams the agent's own log.
func (a nodeAgent) FollowRecords(ctx context.Context, q client.RecordQuery) (*client.Stream[client.RecordFrame], error) {
	return a.client.FollowRecords(ctx, q)
}
