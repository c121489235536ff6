package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// SocketName is the agent's local socket in its data directory.
const SocketName = "agent.sock"

// ErrNoAgent is the cause of an error if no agent serves the data directory.
var ErrNoAgent = errors.New("no agent serves this data directory")

// Agent is the state of an agent.
type Agent struct {
	Node      fleet.NodeID `json:"node"`
	DataDir   string       `json:"dataDir"`
	Version   string       `json:"version"`
	PID       int          `json:"pid"`
	StartedAt time.Time    `json:"startedAt"`
	Etcd      Etcd         `json:"etcd"`
	// Instances counts the instances by state.
	Instances map[fleet.State]int `json:"instances"`
	// Orphans counts the running instances without a record in the store.
	Orphans int `json:"orphans"`
	// Held counts the instances that wait until the node has joined, because the host was
	// restarted or the data directory is a copy.
	Held int `json:"held,omitempty"`
	// LocalRestarts counts the restarts in place that this agent started by itself.
	LocalRestarts int `json:"localRestarts"`
	// Unwritten counts the statuses that are not yet written to the store. UnwrittenSince is
	// when the oldest of them was reported, or zero.
	Unwritten      int       `json:"unwritten"`
	UnwrittenSince time.Time `json:"unwrittenSince,omitzero"`
}

// Etcd is an agent's connection to the store.
type Etcd struct {
	// Reachable is false if an answer is overdue. Since is when this state began, or zero if
	// the store was never reached.
	Reachable bool      `json:"reachable"`
	Since     time.Time `json:"since,omitzero"`
	// LastContact is when the store last answered, or zero.
	LastContact time.Time `json:"lastContact,omitzero"`
	// SessionAlive is false if the control plane may consider the node lost.
	SessionAlive bool  `json:"sessionAlive"`
	Epoch        int64 `json:"epoch,omitempty"`
	// Cluster identifies the store that was joined last.
	Cluster string `json:"cluster,omitempty"`
	// Problem is why the last attempt to join failed.
	Problem string `json:"problem,omitempty"`
}

// Instances are all instances of an agent, by name and id.
type Instances struct {
	Instances []Instance `json:"instances"`
}

// Stop requests stops. Exactly one of Instances, Group and All must be set.
type Stop struct {
	Instances []fleet.InstanceID `json:"instances,omitempty"`
	Group     fleet.GroupName    `json:"group,omitempty"`
	All       bool               `json:"all,omitempty"`
	// Force kills the instances at once.
	Force bool `json:"force,omitempty"`
}

// Stopping is the answer to a Stop. The stops in it are journalled and under way.
type Stopping struct {
	// Instances are the stopping instances as they were before. Ended ones are omitted.
	Instances []Instance `json:"instances"`
	// Problems are the instances that may not stop, by name and id. If there are only such
	// instances, the call fails.
	Problems []Problem `json:"problems,omitempty"`
	// Note says how the control plane will react.
	Note string `json:"note"`
}

// Problem says why an instance may not stop.
type Problem struct {
	ID      fleet.InstanceID `json:"id"`
	Name    string           `json:"name"`
	Message string           `json:"message"`
}

// Local calls the agent of a data directory on the same host through its socket. It needs no
// store, gateway or secret, only permission to open the socket.
type Local struct {
	*Client
}

// NewLocal returns a client of the agent on a data directory without connecting to it. If no
// agent answers, calls return Unavailable with the cause ErrNoAgent.
func NewLocal(dataDir string) *Local {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, dataDir) }
	h := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return &Local{New(h, "http://agent", "")}
}

// Agent reads the state of the agent.
func (l *Local) Agent(ctx context.Context) (Agent, error) {
	var a Agent
	err := l.do(ctx, http.MethodGet, "/v1/agent", nil, &a)
	return a, errs.Wrap("nodeagent.Agent", err)
}

// Instances reads all instances, by name and id.
func (l *Local) Instances(ctx context.Context) ([]Instance, error) {
	var all Instances
	err := l.do(ctx, http.MethodGet, "/v1/instances", nil, &all)
	return all.Instances, errs.Wrap("nodeagent.Instances", err)
}

// Stop stops instances. NotFound names instances that are not on the node; nothing is stopped
// then. Unavailable if none of them can be stopped for sure.
func (l *Local) Stop(ctx context.Context, s Stop) (Stopping, error) {
	var out Stopping
	err := l.do(ctx, http.MethodPost, "/v1/stop", s, &out)
	return out, errs.Wrap("nodeagent.Stop", err)
}

// dialSocket connects to a data directory's socket. The path of a socket is limited to 107
// bytes, so the directory is opened first and the socket addressed relative to it.
func dialSocket(ctx context.Context, dataDir string) (net.Conn, error) {
	dir, err := os.Open(dataDir)
	if errors.Is(err, os.ErrPermission) {
		return nil, denied(err, dataDir)
	}
	if err != nil {
		return nil, noAgent(err, "cannot open the data directory %s: %s", dataDir, reason(err))
	}
	defer dir.Close()
	path := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), SocketName)
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, os.ErrPermission):
		return nil, denied(err, dataDir)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, noAgent(err, "no agent runs on this data directory: %s (its socket is left from an agent that died; its instances keep running, and the next agent adopts them)", dataDir)
	case errors.Is(err, unix.ENOENT):
		return nil, noAgent(err, "no agent runs on this data directory: %s", dataDir)
	}
	return nil, errs.WrapAs(errs.Unavailable, "nodeagent.dial", err)
}

func denied(cause error, dataDir string) error {
	return &errs.Error{
		Op: "nodeagent.dial", Kind: errs.Denied, Err: cause,
		Message: "only the agent's own user and root may open the agent's socket in " + dataDir + ": run this as one of them",
	}
}

func noAgent(cause error, format string, args ...any) error {
	e := errs.New(errs.Unavailable, format, args...)
	e.Op, e.Err = "nodeagent.dial", errors.Join(ErrNoAgent, cause)
	return e
}

func reason(err error) string {
	var e *os.PathError
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}
