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
	"github.com/orreryhq/orrery/libs/wire"
)

// SocketName is the agent's local socket in its data directory.
const SocketName = "agent.sock"

// ErrNoAgent is the cause of an error when no agent serves the data directory.
var ErrNoAgent = errors.New("no agent serves this data directory")

// Agent is what an agent says of itself.
type Agent struct {
	Node      fleet.NodeID `json:"node"`
	DataDir   string       `json:"dataDir"`
	Version   string       `json:"version"`
	PID       int          `json:"pid"`
	StartedAt time.Time    `json:"startedAt"`
	Etcd      Etcd         `json:"etcd"`
	// Instances counts the instances by state.
	Instances map[fleet.State]int `json:"instances"`
	// Orphans run without a record in the store.
	Orphans int `json:"orphans"`
	// Held is how many instances wait for the node to join, since the host was
	// restarted or the data directory is a copy.
	Held int `json:"held,omitempty"`
	// LocalRestarts is how many runs this agent began in place by itself.
	LocalRestarts int `json:"localRestarts"`
	// Unwritten is how many statuses the store does not have yet, UnwrittenSince since
	// when the oldest waits; zero when none does.
	Unwritten      int       `json:"unwritten"`
	UnwrittenSince time.Time `json:"unwrittenSince,omitzero"`
}

// Etcd is how an agent stands with the store.
type Etcd struct {
	// Reachable is false when an answer is overdue; Since is since when it is so, zero
	// when the store was never reached.
	Reachable bool      `json:"reachable"`
	Since     time.Time `json:"since,omitzero"`
	// LastContact is when the store last answered; zero when it never did.
	LastContact time.Time `json:"lastContact,omitzero"`
	// SessionAlive is false when others take the node for lost.
	SessionAlive bool  `json:"sessionAlive"`
	Epoch        int64 `json:"epoch,omitempty"`
	// Cluster identifies the store that was joined last.
	Cluster string `json:"cluster,omitempty"`
	// Problem is why the last attempt to join failed.
	Problem string `json:"problem,omitempty"`
}

// Instances are all instances an agent knows, by name and id.
type Instances struct {
	Instances []Instance `json:"instances"`
}

// Stop asks for a stop. Exactly one of Instances, Group and All is to be given.
type Stop struct {
	Instances []fleet.InstanceID `json:"instances,omitempty"`
	Group     fleet.GroupName    `json:"group,omitempty"`
	All       bool               `json:"all,omitempty"`
	// Force kills at once instead of asking.
	Force bool `json:"force,omitempty"`
}

// Stopping is the answer to a Stop: what was journalled and is under way.
type Stopping struct {
	// Instances are those that were told, as they stood then; what had ended before is left out.
	Instances []Instance `json:"instances"`
	// Problems are those it is not sure of, by name and id; where there are only such, the call fails.
	Problems []Problem `json:"problems,omitempty"`
	// Note says what the control plane will make of it.
	Note string `json:"note"`
}

// Problem is why an order is not sure to be carried out.
type Problem struct {
	ID      fleet.InstanceID `json:"id"`
	Name    string           `json:"name"`
	Message string           `json:"message"`
}

// Local calls the agent of a data directory on the same host through its socket:
// no store, gateway or secret is needed, only the right to open the socket.
type Local struct {
	*Client
}

// NewLocal makes a client of the agent on a data directory; it opens no
// connection. Where no agent answers, the calls' errors are Unavailable with the
// cause ErrNoAgent.
func NewLocal(dataDir string) *Local {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, dataDir) }
	h := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return &Local{New(h, "http://agent", "")}
}

// Agent reads what the agent says of itself.
func (l *Local) Agent(ctx context.Context) (Agent, error) {
	var a Agent
	err := l.get(ctx, "/v1/agent", &a)
	return a, errs.Wrap("nodeagent.Agent", err)
}

// Instances reads all instances, by name and id.
func (l *Local) Instances(ctx context.Context) ([]Instance, error) {
	var all Instances
	err := l.get(ctx, "/v1/instances", &all)
	return all.Instances, errs.Wrap("nodeagent.Instances", err)
}

// Stop has instances stopped. NotFound names those that are not on the node; then
// nothing is stopped. Unavailable when none of them is sure to be.
func (l *Local) Stop(ctx context.Context, s Stop) (Stopping, error) {
	var out Stopping
	err := wire.Call(ctx, l.http, wire.Request{Method: http.MethodPost, URL: l.base + "/v1/stop", Body: s}, &out)
	return out, errs.Wrap("nodeagent.Stop", err)
}

func (l *Local) get(ctx context.Context, path string, into any) error {
	return wire.Call(ctx, l.http, wire.Request{Method: http.MethodGet, URL: l.base + path}, into)
}

// dialSocket connects to a data directory's socket. The path of a socket may have
// 107 bytes; a directory's own may be longer, so it is opened first and the socket
// named through it.
func dialSocket(ctx context.Context, dataDir string) (net.Conn, error) {
	dir, err := os.Open(dataDir)
	if errors.Is(err, os.ErrPermission) {
		return nil, denied(err, dataDir)
	}
	if err != nil {
		return nil, noAgent(err, "the data directory %s cannot be opened: %s", dataDir, reason(err))
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
		return nil, noAgent(err, "no agent runs on this data directory: %s (the socket there was left by one that died; its instances run on, and an agent that is started adopts them)", dataDir)
	case errors.Is(err, unix.ENOENT):
		return nil, noAgent(err, "no agent runs on this data directory: %s", dataDir)
	}
	return nil, errs.As(errs.Unavailable, "nodeagent.dial", err)
}

func denied(cause error, dataDir string) error {
	return &errs.Error{
		Op: "nodeagent.dial", Kind: errs.Denied, Err: cause,
		Message: "the agent's socket in " + dataDir + " may be opened by the agent's own user and by root only: run this as one of them",
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
