// Package datamove does an agent's part of the moves of static instances: it serves the directory of
// an instance that leaves the node, and fetches that of one that comes.
//
// Invariants:
//   - It acts on the step of a move's record, and never because a record is missing.
//   - A directory that comes is complete, verified and flushed before it gets its final path, and
//     the move is reported as verified after that.
//   - It never removes a directory of an instance. It sets it aside, and only if the lock file in it
//     proves that the directory is not used and that its last run was before the move. A day later
//     it removes such a directory.
//   - Each action can be repeated: an agent that is killed continues at the last complete file.
//
// The files in DATA/moving/INSTANCE are: id (the move), list (the source's list, once complete), tree (what was
// fetched so far), and state (the move, once its tree is being installed). DATA/moved holds what was
// set aside.
package datamove

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

// maxPulls is the number of directories that are fetched at a time.
const maxPulls = 2

// Config configures a Mover. All fields are required.
type Config struct {
	Store     *store.Client
	Node      fleet.NodeID
	DataUUID  string
	DataDir   string
	Workspace *workspace.Builder
	// Fence proves the node's session; ok is false without a session.
	Fence func() (f store.Fence, ok bool)
	// Peers authenticates this agent and others.
	Peers *trust.Peers
	Now   func() time.Time
	Log   *slog.Logger
}

// Mover does the agent's part of moves. It is safe for concurrent use.
type Mover struct {
	cfg     Config
	sources *trust.Pool   // of connections to other agents
	turns   chan struct{} // for pulls
	swept   chan struct{} // signals that something was set aside
	running sync.WaitGroup

	mu    sync.Mutex
	moves map[fleet.InstanceID]*move.Move
	work  map[fleet.InstanceID]*work
}

// work is the action for one step of a move.
type work struct {
	move   string
	step   move.Step
	cancel context.CancelFunc
	done   chan struct{}
}

// New returns a mover. Run starts it.
func New(cfg Config) *Mover {
	return &Mover{
		cfg: cfg, sources: trust.NewPool(cfg.Peers, &http.Transport{}), turns: make(chan struct{}, maxPulls), swept: make(chan struct{}, 1),
		moves: map[fleet.InstanceID]*move.Move{}, work: map[fleet.InstanceID]*work{},
	}
}

// Run follows the moves until ctx ends. joined is closed when the node has joined: until then the
// node id may belong to another data directory.
func (m *Mover) Run(ctx context.Context, joined <-chan struct{}) {
	select {
	case <-joined:
	case <-ctx.Done():
		return
	}
	defer m.sources.CloseIdleConnections()
	m.running.Go(func() { m.sweep(ctx) })
	_ = m.cfg.Store.Follow(ctx, keys.Moves().String(), &handler{m, ctx})
	m.running.Wait()
}

// handler passes the records of moves to the mover.
type handler struct {
	*Mover
	ctx context.Context
}

// Reset handles the list of all moves.
func (h *handler) Reset(kvs []store.KeyValue, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.moves
	h.moves = map[fleet.InstanceID]*move.Move{}
	for _, kv := range kvs {
		h.set(kv)
	}
	for id := range before {
		if h.moves[id] == nil {
			h.end(id)
		}
	}
}

// Apply handles changes of moves.
func (h *handler) Apply(changes []store.Change, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changes {
		if c.Removed {
			id := fleet.InstanceID(c.Key[strings.LastIndexByte(c.Key, '/')+1:])
			delete(h.moves, id)
			h.end(id)
			continue
		}
		h.set(c.KeyValue)
	}
}

// set handles one record. mu is held.
func (h *handler) set(kv store.KeyValue) {
	mv, err := store.DecodeNew[move.Move](kv)
	if err != nil {
		h.cfg.Log.Error("cannot decode a record: it is ignored", "key", kv.Key, "error", err)
		return
	}
	h.moves[mv.Instance] = mv
	comes := mv.Target == h.cfg.Node && mv.TargetUUID == h.cfg.DataUUID
	leaves := mv.Source == h.cfg.Node && mv.SourceUUID == h.cfg.DataUUID
	before := h.work[mv.Instance]
	if before != nil && before.move == mv.ID && before.step == mv.Step {
		return
	}
	var do func(context.Context, move.Move)
	switch {
	case comes && mv.Step == move.Copying:
		do = h.pull
	case comes && (mv.Step == move.Canceled || mv.Step == move.Failed):
		do = h.discard
	case leaves && mv.Step == move.Done && !mv.Shared:
		do = h.release
	default:
		h.end(mv.Instance)
		return
	}
	ctx, cancel := context.WithCancel(h.ctx)
	w := &work{move: mv.ID, step: mv.Step, cancel: cancel, done: make(chan struct{})}
	if before != nil {
		before.cancel()
	}
	h.work[mv.Instance] = w
	h.running.Go(func() {
		defer close(w.done)
		defer cancel()
		if before != nil {
			<-before.done
		}
		do(ctx, *mv)
	})
}

// end ends the action for a move. The fetched files stay. mu is held.
func (m *Mover) end(id fleet.InstanceID) {
	if w := m.work[id]; w != nil {
		w.cancel()
	}
}

// The paths of a move below the data directory.
func (m *Mover) staging(id fleet.InstanceID) string {
	return filepath.Join(m.cfg.DataDir, "moving", string(id))
}

func (m *Mover) asideRoot() string { return filepath.Join(m.cfg.DataDir, "moved") }

// aside returns the path to which a directory is set aside. It begins with the time.
func (m *Mover) aside(mv move.Move) string {
	return filepath.Join(m.asideRoot(), strconv.FormatInt(m.cfg.Now().UnixNano(), 10)+"-"+string(mv.Group)+"-"+mv.Name)
}

// release sets the directory of an instance aside that runs on another node now. The lock file must
// say that this node ran it last, and before the move.
func (m *Mover) release(_ context.Context, mv move.Move) {
	dir := m.cfg.Workspace.StaticDir(mv.Group, mv.Name)
	last, held, ok, err := claim.Holder(dir)
	log := m.cfg.Log.With("instance", mv.Name, "directory", dir)
	switch {
	case err != nil:
		log.Error("cannot tell whether the directory of a moved instance is used: it stays", "error", err)
	case !ok:
	case held || last.DataUUID != m.cfg.DataUUID || last.Instance != mv.Instance || last.Generation > mv.Generation:
		log.Info("the directory of a moved instance belongs to another or a later run: it stays")
	default:
		m.setAside(dir, mv)
	}
}

// discard removes what was fetched for a move that ended at its source. A directory that was
// installed already is set aside.
func (m *Mover) discard(_ context.Context, mv move.Move) {
	dir := m.cfg.Workspace.StaticDir(mv.Group, mv.Name)
	if m.installing(mv) && marked(dir) == mv.ID {
		if _, held, ok, err := claim.Holder(dir); err == nil && !held && !ok { // no run has used it
			m.setAside(dir, mv)
		}
	}
	if err := workspace.RemoveTree(m.staging(mv.Instance)); err != nil {
		m.cfg.Log.Error("cannot remove the files of a move", "instance", mv.Name, "error", err)
	}
}

func (m *Mover) setAside(dir string, mv move.Move) {
	to := m.aside(mv)
	if err := m.keepAside(dir, to); err != nil {
		m.cfg.Log.Error("cannot set the directory of a moved instance aside: it stays", "instance", mv.Name, "directory", dir, "error", err)
		return
	}
	m.cfg.Log.Info("set the directory of a moved instance aside", "instance", mv.Name, "directory", to, "removedAfter", move.KeepFor)
}

func (m *Mover) keepAside(dir, to string) error {
	err := m.cfg.Workspace.SetAside(dir, to)
	if err == nil {
		select {
		case m.swept <- struct{}{}:
		default:
		}
	}
	return err
}

// SetAside keeps a directory that was replaced, as that of an instance which has moved.
func (m *Mover) SetAside(dir string, group fleet.GroupName, name string) error {
	to := m.aside(move.Move{Group: group, Name: name})
	m.cfg.Log.Info("set the replaced directory of an instance aside", "instance", name, "directory", to, "removedAfter", move.KeepFor)
	return m.keepAside(dir, to)
}

// sweep removes the directories that were set aside a day ago, and files of moves that are over and
// as old.
func (m *Mover) sweep(ctx context.Context) {
	for {
		next := m.removeOld()
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-m.swept:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// removeOld removes what is old and returns when the next directory is.
func (m *Mover) removeOld() (next time.Duration) {
	next = move.KeepFor
	now := m.cfg.Now()
	old := func(root, name string, at time.Time) {
		if left := at.Add(move.KeepFor).Sub(now); left > 0 {
			next = min(next, left+time.Second)
			return
		}
		if err := workspace.RemoveTree(filepath.Join(root, name)); err != nil {
			m.cfg.Log.Error("cannot remove the old directory of a moved instance", "directory", filepath.Join(root, name), "error", err)
		}
	}
	all, _ := os.ReadDir(m.asideRoot())
	for _, d := range all {
		written, _, _ := strings.Cut(d.Name(), "-")
		if nanos, err := strconv.ParseInt(written, 10, 64); err == nil {
			old(m.asideRoot(), d.Name(), time.Unix(0, nanos))
		}
	}
	root := filepath.Join(m.cfg.DataDir, "moving")
	all, _ = os.ReadDir(root)
	for _, d := range all {
		m.mu.Lock()
		mv := m.moves[fleet.InstanceID(d.Name())]
		m.mu.Unlock()
		if info, err := d.Info(); err == nil && !mv.Active() {
			old(root, d.Name(), info.ModTime())
		}
	}
	return next
}
