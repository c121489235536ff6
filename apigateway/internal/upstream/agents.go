package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Agent is the part of client.Client that the gateway uses; errors and meaning are described there.
type Agent interface {
	Instance(ctx context.Context, id fleet.InstanceID) (client.Instance, error)
	Find(ctx context.Context, id fleet.InstanceID, q client.Query) (client.Log, error)
	Read(ctx context.Context, id fleet.InstanceID, offset int64, maxBytes int) (client.Chunk, error)
	WriteLine(ctx context.Context, id fleet.InstanceID, line string) error
	RCON(ctx context.Context, id fleet.InstanceID, command string) (client.RemoteAnswer, error)
	Heartbeat(ctx context.Context, id fleet.InstanceID, h client.Heartbeat) error
	Measured(ctx context.Context, id fleet.InstanceID) (client.Measured, error)
	Series(ctx context.Context, id fleet.InstanceID, w series.Window) (series.Figures, error)
	NodeSeries(ctx context.Context, w series.Window) (series.Figures, error)
	Files(ctx context.Context, id fleet.InstanceID, path string) (client.Directory, error)
	File(ctx context.Context, id fleet.InstanceID, path string, maxBytes int, tail bool) (client.FileContent, error)
	WriteFile(ctx context.Context, id fleet.InstanceID, w client.FileWrite, body io.Reader) (client.FileChange, error)
	EditFile(ctx context.Context, id fleet.InstanceID, e client.FileEdit) (client.FileChange, error)
	FileVersions(ctx context.Context, id fleet.InstanceID, path string) (client.FileVersions, error)
	CreateBackup(ctx context.Context, id fleet.InstanceID, n client.NewBackup) (client.Backup, error)
	Backups(ctx context.Context, id fleet.InstanceID) (client.Backups, error)
	Backup(ctx context.Context, id fleet.InstanceID, backup string, within time.Duration) (client.Backup, error)
	RestoreBackup(ctx context.Context, id fleet.InstanceID, backup string, dryRun bool) (client.Backup, error)
	DeleteBackup(ctx context.Context, id fleet.InstanceID, backup string, dryRun bool) (client.Backup, error)
	Shutdown(ctx context.Context, s client.Shutdown) error
	Follow(ctx context.Context, id fleet.InstanceID, at client.Place) (*client.Stream[client.Frame], error)
	Records(ctx context.Context, q client.RecordQuery) (client.Records, error)
	FollowRecords(ctx context.Context, q client.RecordQuery) (*client.Stream[client.RecordFrame], error)
	Export(ctx context.Context, id fleet.InstanceID, prefix string) (io.ReadCloser, error)
	Cache(ctx context.Context) (client.Cache, error)
	Warm(ctx context.Context, digests []string) (client.WarmAnswer, error)
}

// DialAgents returns a function that creates clients of agents.
func DialAgents(c Connections) func(node *fleet.Node) Agent {
	return func(node *fleet.Node) Agent {
		return client.New(c.To(pki.Identity{Service: pki.Agent, Name: string(node.ID)}), node.AgentURL, c.Token)
	}
}

// Live are an instance's figures.
type Live struct {
	Report reports.InstanceReport
	// PID is the server's process id, 0 when none runs.
	PID int
	// Attach is the shell command that opens its terminal on the node; empty without a terminal.
	Attach string
}

const (
	// callTimeout limits a call to an agent.
	callTimeout = 10 * time.Second
	// editTimeout limits a change of files, which may copy or remove much.
	editTimeout = 5 * time.Minute
	// warmTimeout is slightly longer than an agent takes at most to warm its cache.
	warmTimeout = 11 * time.Minute
	// maxWarmed is the maximum number of versions in one call.
	maxWarmed = 256
)

// Agents calls the agents of all nodes.
type Agents struct {
	view     *view.View
	dial     func(node *fleet.Node) Agent
	breakers *breakers
	// live has separate breakers, because calls for figures time out early: an agent too slow for them may
	// serve everything else.
	live    *breakers
	figures *figures
}

// NewAgents returns a client of all agents in the view. dial returns a client of a node's agent.
func NewAgents(h *Health, v *view.View, dial func(node *fleet.Node) Agent) *Agents {
	return &Agents{view: v, dial: dial, breakers: h.of[kindAgent], live: h.of[kindFigures], figures: newFigures()}
}

// Live returns an instance's figures, at most a second old. It waits at most liveBudget. Errors are those of
// call.
func (a *Agents) Live(ctx context.Context, i *fleet.Instance) (Live, error) {
	node, err := a.node(i)
	if err != nil { // figures from before the node was lost are outdated
		return Live{}, err
	}
	return a.figures.get(ctx, i, func(ctx context.Context) (Live, error) {
		got, err := callNode(ctx, a, a.live, node, func(ctx context.Context, agent Agent) (client.Instance, error) {
			return agent.Instance(ctx, i.Intent.ID)
		})
		return Live{
			Report: reports.InstanceReport{
				Players: got.Players, MaxPlayers: got.MaxPlayers, PlayersKnown: got.PlayersKnown, TPS: got.TPS,
				HeartbeatAt: got.LastHeartbeat, Usage: got.Usage,
			},
			PID: got.PID, Attach: got.Attach,
		}, err
	})
}

// Log returns a page of an instance's output; an empty one if the instance was never placed.
func (a *Agents) Log(ctx context.Context, i *fleet.Instance, q client.Query) (client.Log, error) {
	if i.Placement == nil {
		return client.Log{}, nil
	}
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Log, error) { return agent.Find(ctx, i.Intent.ID, q) })
}

// Output returns at most limit bytes of an instance's output from a byte offset on, and the offset after
// them; none if the instance was never placed.
func (a *Agents) Output(ctx context.Context, i *fleet.Instance, offset int64, limit int) (data []byte, next int64, err error) {
	if i.Placement == nil {
		return nil, 0, nil
	}
	c, err := call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Chunk, error) {
		return agent.Read(ctx, i.Intent.ID, offset, limit)
	})
	return c.Data, c.Next, err
}

// Console writes one line to an instance's console.
func (a *Agents) Console(ctx context.Context, i *fleet.Instance, line string) error {
	_, err := call(ctx, a, i, func(ctx context.Context, agent Agent) (struct{}, error) {
		return struct{}{}, agent.WriteLine(ctx, i.Intent.ID, line)
	})
	return err
}

// RCON runs a command over an instance's remote console and returns the response.
func (a *Agents) RCON(ctx context.Context, i *fleet.Instance, command string) (client.RemoteAnswer, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.RemoteAnswer, error) {
		return agent.RCON(ctx, i.Intent.ID, command)
	})
}

// Heartbeat forwards a heartbeat of an instance. Errors are those of call, and AlreadyExists if its sequence
// number is not higher than the last one.
func (a *Agents) Heartbeat(ctx context.Context, i *fleet.Instance, h client.Heartbeat) error {
	_, err := call(ctx, a, i, func(ctx context.Context, agent Agent) (struct{}, error) {
		return struct{}{}, agent.Heartbeat(ctx, i.Intent.ID, h)
	})
	a.figures.forget(i.Intent.ID) // the next call sees the new state
	return err
}

// Measured returns the metrics that an instance last reported. Errors are those of call, and NotFound if it has
// reported none in its current run.
func (a *Agents) Measured(ctx context.Context, i *fleet.Instance) (client.Measured, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Measured, error) {
		return agent.Measured(ctx, i.Intent.ID)
	})
}

// Series returns an instance's recent metrics over time. Errors are those of call, and NotFound if the agent has
// no metrics of it.
func (a *Agents) Series(ctx context.Context, i *fleet.Instance, w series.Window) (series.Figures, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (series.Figures, error) {
		return agent.Series(ctx, i.Intent.ID, w)
	})
}

// Files lists a directory of an instance. Errors are those of call and client.Files.
func (a *Agents) Files(ctx context.Context, i *fleet.Instance, path string) (client.Directory, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Directory, error) {
		return agent.Files(ctx, i.Intent.ID, path)
	})
}

// File reads a part of a file of an instance. Errors are those of call and client.Files.
func (a *Agents) File(ctx context.Context, i *fleet.Instance, path string, maxBytes int, tail bool) (client.FileContent, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.FileContent, error) {
		return agent.File(ctx, i.Intent.ID, path, maxBytes, tail)
	})
}

// WriteFile writes a file of an instance, for as long as the body needs. Errors are those of call and
// client.WriteFile, and Malformed or TooLarge if the body cannot be read.
func (a *Agents) WriteFile(ctx context.Context, i *fleet.Instance, w client.FileWrite, body io.Reader) (client.FileChange, error) {
	node, err := a.node(i)
	if err != nil {
		return client.FileChange{}, err
	}
	return beside(a.breakers, node.AgentURL, agentName(node), func() (client.FileChange, error) {
		from := &watchedBody{from: body}
		done, err := a.dial(node).WriteFile(ctx, i.Intent.ID, w, from)
		if broken := from.failure(); err != nil && broken != nil { // the caller's fault, not the agent's
			err = broken
		}
		return done, err
	})
}

// watchedBody records why a body could not be read. The connection may read it after the response.
type watchedBody struct {
	from io.Reader

	mu  sync.Mutex
	err error
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = err
	}
	return n, err
}

func (b *watchedBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var known *errs.Error
	var large *http.MaxBytesError
	switch {
	case b.err == nil:
		return nil
	case errors.As(b.err, &known):
		return b.err
	case errors.As(b.err, &large):
		return &errs.Error{Kind: errs.TooLarge, Message: fmt.Sprintf("the body is larger than %d bytes: send less at once", large.Limit), Err: b.err}
	}
	return &errs.Error{Kind: errs.Malformed, Message: "the body did not arrive completely: send it again", Err: b.err}
}

// EditFile performs an operation on the files of an instance. It may take as long as copying the kept
// content. Errors are those of call and client.EditFile.
func (a *Agents) EditFile(ctx context.Context, i *fleet.Instance, e client.FileEdit) (client.FileChange, error) {
	node, err := a.node(i)
	if err != nil {
		return client.FileChange{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, editTimeout)
	defer cancel()
	return beside(a.breakers, node.AgentURL, agentName(node), func() (client.FileChange, error) {
		return a.dial(node).EditFile(ctx, i.Intent.ID, e)
	})
}

// FileVersions lists the kept previous contents of files. Errors are those of call and
// client.FileVersions.
func (a *Agents) FileVersions(ctx context.Context, i *fleet.Instance, path string) (client.FileVersions, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.FileVersions, error) {
		return agent.FileVersions(ctx, i.Intent.ID, path)
	})
}

// MaxBackupWait bounds how long a call waits for the end of a backup.
const MaxBackupWait = callTimeout - 2*time.Second

// CreateBackup begins a backup of an instance. Errors are those of call and client.CreateBackup.
func (a *Agents) CreateBackup(ctx context.Context, i *fleet.Instance, n client.NewBackup) (client.Backup, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Backup, error) {
		return agent.CreateBackup(ctx, i.Intent.ID, n)
	})
}

// Backups lists the backups of an instance. Errors are those of call and client.Backups.
func (a *Agents) Backups(ctx context.Context, i *fleet.Instance) (client.Backups, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Backups, error) {
		return agent.Backups(ctx, i.Intent.ID)
	})
}

// Backup returns a backup. It waits for its end, for at most within and MaxBackupWait. Errors are those of call
// and client.Backup.
func (a *Agents) Backup(ctx context.Context, i *fleet.Instance, backup string, within time.Duration) (client.Backup, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Backup, error) {
		return agent.Backup(ctx, i.Intent.ID, backup, min(within, MaxBackupWait))
	})
}

// RestoreBackup begins to restore a backup. Errors are those of call and client.RestoreBackup.
func (a *Agents) RestoreBackup(ctx context.Context, i *fleet.Instance, backup string, dryRun bool) (client.Backup, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Backup, error) {
		return agent.RestoreBackup(ctx, i.Intent.ID, backup, dryRun)
	})
}

// DeleteBackup removes a backup. Errors are those of call and client.DeleteBackup.
func (a *Agents) DeleteBackup(ctx context.Context, i *fleet.Instance, backup string, dryRun bool) (client.Backup, error) {
	return call(ctx, a, i, func(ctx context.Context, agent Agent) (client.Backup, error) {
		return agent.DeleteBackup(ctx, i.Intent.ID, backup, dryRun)
	})
}

// call calls the agent of an instance's node. It returns Conflict if the instance has no node yet, and
// Unavailable if the node is not connected or its agent does not answer.
func call[T any](ctx context.Context, a *Agents, i *fleet.Instance, f func(context.Context, Agent) (T, error)) (T, error) {
	node, err := a.node(i)
	if err != nil {
		var none T
		return none, err
	}
	return callNode(ctx, a, a.breakers, node, f)
}

// callNode calls the agent of a connected node.
func callNode[T any](ctx context.Context, a *Agents, b *breakers, node *fleet.Node, f func(context.Context, Agent) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return through(b, node.AgentURL, agentName(node), func() (T, error) { return f(ctx, a.dial(node)) })
}

func agentName(node *fleet.Node) string { return "the agent of node " + string(node.ID) }

// node returns the instance's node, which must be connected.
func (a *Agents) node(i *fleet.Instance) (*fleet.Node, error) {
	id := i.Node()
	if id == "" {
		return nil, errs.New(errs.Conflict, "instance %s has no node yet", i.Intent.Name)
	}
	return a.connected(id)
}

// errAway is the cause when the agent is not connected.
var errAway = errors.New("the agent is not connected")

// connected returns a node, or Unavailable if its agent is not connected.
func (a *Agents) connected(id fleet.NodeID) (*fleet.Node, error) {
	snap := a.view.Snapshot()
	node, ok := snap.Nodes.Get(id)
	if _, alive := snap.NodeSessions.Get(id); !ok || !alive || node.AgentURL == "" {
		return nil, &errs.Error{
			Kind: errs.Unavailable, Err: errAway,
			Message: fmt.Sprintf("the agent of node %s is not connected: retry when it is back", id),
		}
	}
	return node, nil
}

// Follow streams an instance's output from a position on, until ctx ends. Errors are those of call, and NotFound
// if the agent does not have the instance. Only the start of the response has a timeout.
func (a *Agents) Follow(ctx context.Context, i *fleet.Instance, at client.Place) (*client.Stream[client.Frame], error) {
	node, err := a.node(i)
	if err != nil {
		return nil, err
	}
	return opened(ctx, a, node, func(ctx context.Context, agent Agent) (*client.Stream[client.Frame], error) {
		return agent.Follow(ctx, i.Intent.ID, at)
	})
}

// Export opens an archive of an instance's configuration, readable until ctx ends. Errors are those of call and
// client.Export. Only the start of the response has a timeout.
func (a *Agents) Export(ctx context.Context, i *fleet.Instance, prefix string) (io.ReadCloser, error) {
	node, err := a.node(i)
	if err != nil {
		return nil, err
	}
	return opened(ctx, a, node, func(ctx context.Context, agent Agent) (io.ReadCloser, error) {
		return agent.Export(ctx, i.Intent.ID, prefix)
	})
}

// opened starts a stream within the call timeout. The stream then lasts until ctx ends.
func opened[T any](ctx context.Context, a *Agents, node *fleet.Node, open func(context.Context, Agent) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(callTimeout, cancel)
	s, err := through(a.breakers, node.AgentURL, agentName(node), func() (T, error) {
		return open(ctx, a.dial(node))
	})
	if late.Stop(); err != nil {
		cancel()
		return s, err
	}
	context.AfterFunc(ctx, cancel) // also ends with the caller's context
	return s, nil
}

// Cache returns a node's cached templates. It returns Unavailable if the node is not connected or its agent
// does not answer.
func (a *Agents) Cache(ctx context.Context, id fleet.NodeID) (client.Cache, error) {
	return askNode(ctx, a, id, func(ctx context.Context, agent Agent) (client.Cache, error) { return agent.Cache(ctx) })
}

// Records returns the last records of a node agent's own log. Errors are those of Cache.
func (a *Agents) Records(ctx context.Context, id fleet.NodeID, q client.RecordQuery) (client.Records, error) {
	return askNode(ctx, a, id, func(ctx context.Context, agent Agent) (client.Records, error) { return agent.Records(ctx, q) })
}

// NodeSeries returns a node's recent metrics over time. Errors are those of Cache.
func (a *Agents) NodeSeries(ctx context.Context, id fleet.NodeID, w series.Window) (series.Figures, error) {
	return askNode(ctx, a, id, func(ctx context.Context, agent Agent) (series.Figures, error) { return agent.NodeSeries(ctx, w) })
}

// Shutdown makes a node's agent stop its instances and exit. It does not wait. Errors are those of Cache, and
// Conflict if another node's agent has its address.
func (a *Agents) Shutdown(ctx context.Context, id fleet.NodeID, reason string) error {
	_, err := askNode(ctx, a, id, func(ctx context.Context, agent Agent) (struct{}, error) {
		return struct{}{}, agent.Shutdown(ctx, client.Shutdown{Node: id, Reason: reason})
	})
	return err
}

// askNode calls the agent of a node.
func askNode[T any](ctx context.Context, a *Agents, id fleet.NodeID, f func(context.Context, Agent) (T, error)) (T, error) {
	node, err := a.connected(id)
	if err != nil {
		var none T
		return none, err
	}
	return callNode(ctx, a, a.breakers, node, f)
}

// FollowRecords streams a node agent's own log until ctx ends. Errors are those of Cache.
func (a *Agents) FollowRecords(ctx context.Context, id fleet.NodeID, q client.RecordQuery) (*client.Stream[client.RecordFrame], error) {
	node, err := a.connected(id)
	if err != nil {
		return nil, err
	}
	return opened(ctx, a, node, func(ctx context.Context, agent Agent) (*client.Stream[client.RecordFrame], error) {
		return agent.FollowRecords(ctx, q)
	})
}

// Warm makes a node download template versions and returns when all are done or have failed, which may
// take minutes. Errors are those of Cache.
func (a *Agents) Warm(ctx context.Context, id fleet.NodeID, digests []string) (all []client.WarmedVersion, err error) {
	node, err := a.connected(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	for some := range slices.Chunk(digests, maxWarmed) {
		answer, err := beside(a.breakers, node.AgentURL, agentName(node), func() (client.WarmAnswer, error) {
			return a.dial(node).Warm(ctx, some)
		})
		if err != nil {
			return all, err
		}
		all = append(all, answer.Versions...)
	}
	return all, nil
}
