// Package api is the agent's HTTP API for the gateway: live figures, log, console and
// heartbeats of the node's instances, its template cache, and the agent's own log.
//
// Every call except /livez requires the cluster secret. Errors are encoded in wire's Internal
// dialect, so that the client gets their Kind.
package api

import (
	"context"
	"time"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/fleet"
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

type consoleRequest struct {
	id   fleet.InstanceID
	line string
}

type remoteRequest struct {
	id      fleet.InstanceID
	command string
}

type heartbeatRequest struct {
	id fleet.InstanceID
	client.Heartbeat
}

func getInstance(all Instances) endpoint.Endpoint {
	return func(_ context.Context, request any) (any, error) {
		i, err := all.Instance(request.(fleet.InstanceID))
		if err != nil {
			return nil, err
		}
		return View(i.Live(), time.Now()), nil
	}
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

func writeLine(all Instances) endpoint.Endpoint {
	return func(_ context.Context, request any) (any, error) {
		r := request.(consoleRequest)
		i, err := all.Instance(r.id)
		if err != nil {
			return nil, err
		}
		return nil, i.WriteLine(r.line)
	}
}

func remoteConsole(all Instances) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		r := request.(remoteRequest)
		i, err := all.Instance(r.id)
		if err != nil {
			return nil, err
		}
		answer, err := i.RCON(ctx, r.command)
		if err != nil {
			return nil, err
		}
		return client.RemoteAnswer{Answer: answer.Text, Incomplete: answer.Incomplete}, nil
	}
}

func readMeasured(all Instances) endpoint.Endpoint {
	return func(_ context.Context, request any) (any, error) {
		i, err := all.Instance(request.(fleet.InstanceID))
		if err != nil {
			return nil, err
		}
		m, err := i.Measured()
		if err != nil {
			return nil, err
		}
		return client.Measured{At: m.At, Proxy: m.Proxy, Figures: m.Figures}, nil
	}
}

func heartbeat(all Instances) endpoint.Endpoint {
	return func(_ context.Context, request any) (any, error) {
		r := request.(heartbeatRequest)
		i, err := all.Instance(r.id)
		if err != nil {
			return nil, err
		}
		now := time.Now().UTC()
		at := r.At
		if at.IsZero() || at.After(now) {
			at = now
		}
		var measured *driver.Measured
		if r.Measured != nil {
			measured = &driver.Measured{Proxy: r.Measured.Proxy, Figures: r.Measured.Figures}
		}
		return nil, i.Heartbeat(driver.Beat{
			State: r.State, Players: r.Players, MaxPlayers: r.MaxPlayers, TPS: r.TPS, At: at, Sequence: r.Sequence,
			Joined: r.Joined, Left: r.Left, Measured: measured,
		})
	}
}
