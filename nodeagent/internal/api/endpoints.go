// Package api is the agent's HTTP API for the gateway: live figures, log, console and
// heartbeats of the node's instances, its template cache, and the agent's own log.
//
// Every call except /livez requires the cluster secret. Errors are encoded in wire's Internal
// dialect, so that the client gets their Kind.
package api

import (
	"context"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

// Instances are the node's instances.
type Instances interface {
	// Instance returns an instance's driver. NotFound if the node does not have it.
	Instance(id fleet.InstanceID) (*driver.Instance, error)
	// LogPath is the path of an instance's output.
	LogPath(id fleet.InstanceID) string
	// Logs notifies about new output.
	Logs() *console.Follower
}

func getInstance(all Instances) http.Handler {
	return serveInstance(all, parseNothing, func(_ context.Context, i *driver.Instance, _ struct{}) (any, error) {
		return View(i.Live(), time.Now()), nil
	})
}

// View is an instance as the API shows it.
func View(l driver.Live, now time.Time) client.Instance {
	s := l.Status
	v := client.Instance{
		ID: s.Instance, Name: l.Name, Group: s.Group, Generation: s.Generation,
		State: s.State, Reason: s.Reason, Message: s.Message, PID: s.PID, Port: l.Port, Restarts: s.Restarts,
		ChangedAt: s.ChangedAt, Orphan: l.Orphan,
		StartedAt: s.StartedAt, OnlineAt: s.OnlineAt, Players: l.Report.Players, MaxPlayers: l.Report.MaxPlayers,
		PlayersKnown: l.Report.PlayersKnown, TPS: l.Report.TPS, LastHeartbeat: l.Report.HeartbeatAt, SaidState: l.Said, Attach: l.Attach, Usage: l.Report.Usage,
	}
	if s.PID != 0 {
		v.UptimeMillis = max(0, now.Sub(s.StartedAt).Milliseconds())
	}
	return v
}

func writeLine(all Instances) http.Handler {
	return serveInstance(all, parseLine, func(_ context.Context, i *driver.Instance, line string) (any, error) {
		return nil, i.WriteLine(line)
	})
}

func parseLine(r *http.Request) (string, error) {
	var body struct {
		Line *string `json:"line"`
	}
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return "", err
	}
	if body.Line == nil {
		return "", errs.Field("line", "is required")
	}
	return *body.Line, nil
}

func remoteConsole(all Instances) http.Handler {
	return serveInstance(all, parseCommand, func(ctx context.Context, i *driver.Instance, command string) (any, error) {
		answer, err := i.RCON(ctx, command)
		return client.RemoteAnswer{Answer: answer.Text, Incomplete: answer.Incomplete}, err
	})
}

func parseCommand(r *http.Request) (string, error) {
	var body client.RemoteCommand
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return "", err
	}
	if body.Command == "" {
		return "", errs.Field("command", "is required")
	}
	return body.Command, nil
}

func readMeasured(all Instances) http.Handler {
	return serveInstance(all, parseNothing, func(_ context.Context, i *driver.Instance, _ struct{}) (any, error) { return i.Measured() })
}

func heartbeat(all Instances) http.Handler {
	return serveInstance(all, parseHeartbeat, func(_ context.Context, i *driver.Instance, h client.Heartbeat) (any, error) {
		if now := time.Now().UTC(); h.At.IsZero() || h.At.After(now) {
			h.At = now
		}
		return nil, i.Heartbeat(h)
	})
}

func parseHeartbeat(r *http.Request) (h client.Heartbeat, err error) {
	if err := wire.DecodeJSON(r.Body, 0, &h); err != nil {
		return h, err
	}
	switch {
	case h.Players != nil && *h.Players < 0:
		err = errs.Field("players", "must not be negative, is %d", *h.Players)
	case h.MaxPlayers != nil && *h.MaxPlayers < 0:
		err = errs.Field("maxPlayers", "must not be negative, is %d", *h.MaxPlayers)
	case h.TPS != nil && *h.TPS < 0:
		err = errs.Field("tps", "must not be negative, is %v", *h.TPS)
	case h.Sequence < 0:
		err = errs.Field("sequence", "must not be negative, is %d", h.Sequence)
	case h.Measured != nil && len(h.Measured.Figures) > driver.MaxFigures:
		err = errs.Field("measured", "must be at most %d bytes, has %d", driver.MaxFigures, len(h.Measured.Figures))
	case h.Joined != nil:
		err = h.Joined.Validate()
	case h.Left != "":
		_, err = players.ParsePlayerID(string(h.Left))
	}
	return h, err
}
