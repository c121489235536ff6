// Package driver drives one instance: a goroutine passes events to the pure machine,
// journals the new state and performs the effects.
//
// Invariants:
//   - The journal is written before an effect is performed. A process's identity is
//     journalled as soon as it exists.
//   - Effects that take time run in a helper goroutine and answer with an event. The
//     driver itself does not wait for a server, a network or a disk.
//   - When the driver's context ends, processes keep running and all helpers have returned.
package driver

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Instance drives one instance. Create it with New or Restore and call Run once.
type Instance struct {
	deps *Deps
	id   fleet.InstanceID
	log  *slog.Logger

	// Owned by Run's goroutine.
	entry        journal.Entry
	process      runtime.Process
	began        time.Time    // when this agent started the process; zero if it was adopted
	guard        *guard.Guard // of an exclusive instance's process
	guards       int          // how many guards of this process were replaced
	timer        *time.Timer
	due          machine.Elapsed
	force        chan struct{}      // not nil during a stop sequence; closing it kills the process
	stopping     sync.WaitGroup     // the stop sequence
	cancel       context.CancelFunc // cancels the pending preparation or launch
	cancelChecks context.CancelFunc // ends the health checks; nil if none run
	listener     *listener          // listens while it sleeps; nil otherwise
	done         bool
	// cachedPlan is the digest of the plan whose content the cache keeps; empty for none.
	cachedPlan string
	// recording holds the ids of crashes that are being recorded.
	recording map[string]bool
	// journalRetry fires when a failed journal write is to be retried; nil if the journal is
	// up to date.
	journalRetry <-chan time.Time
	// journalErr is the error of the last journal write.
	journalErr error

	helpers sync.WaitGroup

	mu      sync.Mutex
	mailbox []message
	live    Live
	console runtime.Process
	wake    chan struct{}
	selfReport
	// built describes what the directory was built from.
	built buildInfo
	// revealed are the values of its secrets.
	revealed revealed
	// players stores the players that the run has reported; tracksPlayers is set once it has reported
	// any. playersUnsaved is set, and logged, when they cannot be stored.
	players                       presence.File
	tracksPlayers, playersUnsaved bool
}

// message is an event with the data that its handling needs besides the pure state. Without
// an event it carries a new guard.
type message struct {
	event   machine.Event
	process runtime.Process
	guard   *guard.Guard
	// run is the run of the guard in a message without an event.
	run int
	// began is when process was started; zero if it was adopted.
	began time.Time
	token string
	// nodeValues are the node's values that the directory was built with; set along with token.
	nodeValues *journal.NodeValues
	// uid is the instance's own user and group, or 0; set along with token or a started process.
	uid int
	// logFrom is the offset in the instance's output at which the process's output begins.
	logFrom int64
	// handled, if not nil, receives the error of the journal write. It is buffered.
	handled chan error
}

// New returns the driver of a new instance.
func New(deps *Deps, id fleet.InstanceID) *Instance {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &Instance{
		deps: deps, id: id, log: deps.Log.With("instance", string(id)), timer: timer, wake: make(chan struct{}, 1),
		selfReport: newSelfReport(time.Time{}, 0), players: playersOf(deps, id),
	}
}

// Restore returns the driver of a journalled instance, which continues its work.
func Restore(deps *Deps, e journal.Entry) *Instance {
	i := New(deps, e.Machine.Placement.Instance)
	i.entry = e
	i.live.follow(e.Machine)
	i.selfReport = newSelfReport(e.Machine.Status.StartedAt, readSequence(deps.RunDir(i.id)))
	i.built = buildInfoOf(e)
	if i.live.Status.State.Running() {
		i.loadPlayers()
	}
	i.loadSecrets(e.Machine) // before anything about it is reported
	i.keep()
	i.live.Held = deps.Held && e.Machine.Status.State != "" && !e.Machine.Status.State.Terminal()
	i.Send(machine.Recovered{})
	return i
}

// Release clears Held of an instance that is about to run.
func (i *Instance) Release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.live.Held = false
}

// Send sends the instance an event. It never blocks.
func (i *Instance) Send(e machine.Event) { i.post(message{event: e}) }

const heldMessage = "the host was restarted or this data directory is a copy: the agent waits until the node has joined"

var errHeld = errs.New(errs.Unavailable, "%s. Restore the connection to etcd and try again", heldMessage)

// Order sends the instance an event and returns when the decision is journalled and under
// way. Unavailable if ctx ends first, if the instance is held, or if the decision is under
// way but could not be journalled.
func (i *Instance) Order(ctx context.Context, e machine.Event) error {
	if i.Live().Held {
		return errHeld
	}
	m := message{event: e, handled: make(chan error, 1)}
	i.post(m)
	select {
	case err := <-m.handled:
		if err != nil {
			return &errs.Error{Op: "driver.Order", Kind: errs.Unavailable, Err: err, Message: "it is under way, but could not be journalled: " +
				"if the agent ends before it is finished, the next agent does not continue it; check the data directory's disk"}
		}
		return nil
	case <-ctx.Done():
		return errs.WrapAs(errs.Unavailable, "driver.Order", ctx.Err())
	}
}

func (i *Instance) post(m message) {
	i.mu.Lock()
	i.mailbox = append(i.mailbox, m)
	i.mu.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *Instance) take() []message {
	i.mu.Lock()
	defer i.mu.Unlock()
	mail := i.mailbox
	i.mailbox = nil
	return mail
}

// Run drives the instance until it is forgotten or ctx ends.
func (i *Instance) Run(ctx context.Context) {
	defer i.timer.Stop()
	for !i.done {
		select {
		case <-i.wake:
			if ctx.Err() != nil { // a helper canceled by ctx did not fail
				i.leave()
				return
			}
			for _, m := range i.take() {
				i.handle(ctx, m)
			}
		case <-i.exited():
			p := i.process
			i.setProcess(nil)
			i.deps.Logs.Release(i.deps.LogPath(i.id))
			i.endGuard()
			end := i.exitEvent(i.entry.Machine.Run, p.Exit())
			if !i.began.IsZero() {
				end.Ran = time.Since(i.began)
			}
			i.handle(ctx, message{event: end})
		case <-i.guardExited():
			i.replaceGuard(ctx)
		case <-i.timer.C:
			i.handle(ctx, message{event: i.elapsed()})
		case <-i.journalRetry:
			i.writeJournal()
		case <-ctx.Done():
			i.leave()
			return
		}
	}
	i.helpers.Wait()
}

// leave waits for the helpers and journals a process that one of them started meanwhile.
func (i *Instance) leave() {
	i.helpers.Wait()
	for _, m := range i.take() {
		if m.process != nil {
			i.advance(m)
		}
	}
}

func (i *Instance) exited() <-chan struct{} {
	if i.process == nil {
		return nil
	}
	return i.process.Exited()
}

func (i *Instance) setProcess(p runtime.Process) {
	i.process = p
	if p == nil {
		i.force = nil
		i.endChecks()
	}
	i.mu.Lock()
	i.console = p
	i.live.Attach = ""
	if p != nil {
		i.live.Attach = p.Attach()
	}
	i.mu.Unlock()
}

// handle processes one event: decide, journal, report, perform. An end is reported before
// the directory is removed, which may be slow.
func (i *Instance) handle(ctx context.Context, m message) {
	if m.handled != nil {
		defer func() { m.handled <- i.journalErr }()
	}
	if i.done {
		return
	}
	if m.event == nil {
		i.setGuard(m.guard, m.run)
		return
	}
	m.event = i.addRefusal(i.markExpired(m.event))
	before, waited := i.entry.Machine.Status, i.entry.Machine.Next
	effects := i.advance(m)
	i.endTurn()
	i.prefetch(ctx, waited)
	if m.process != nil {
		i.watchDiskLimit(ctx, m.process)
	}
	i.recordCrashes()
	if after := i.entry.Machine.Status; !same(before, after) && after.State != "" {
		i.logChange(ctx, before, after)
		i.deps.Report(after)
		if after.State.Terminal() {
			i.deps.Logs.Wake(i.deps.LogPath(i.id)) // viewers of its console learn of the end
		}
	}
	for _, e := range effects {
		i.perform(ctx, e)
	}
	i.listenAsleep(ctx)
}

// advance steps the machine and journals the new state.
func (i *Instance) advance(m message) []machine.Effect {
	next, effects := machine.Step(i.entry.Machine, m.event, i.deps.Now().UTC())
	if m.process == nil && m.token == "" && len(effects) == 0 && reflect.DeepEqual(next, i.entry.Machine) {
		return nil // nothing new, as after every relist
	}
	i.entry.Machine = next
	i.keep()
	if m.process != nil {
		i.setProcess(m.process)
		i.guard, i.guards, i.began = m.guard, 0, m.began
		i.entry.Process, i.entry.ProcessRun = m.process.Identity(), next.Run
		if !m.began.IsZero() {
			i.entry.LogFrom, i.entry.UID = m.logFrom, m.uid
		}
		i.deps.Logs.Maintain(i.deps.LogPath(i.id), logLimit(next.Plan), !m.began.IsZero())
	}
	if m.token != "" {
		i.entry.Token, i.entry.NodeValues, i.entry.UID = m.token, m.nodeValues, m.uid
	}
	i.writeJournal()
	launches := slices.ContainsFunc(effects, isLaunch)
	i.mu.Lock()
	if launches {
		i.forgetSequence()
	}
	if launches || next.Status.Generation != i.live.Status.Generation { // earlier heartbeats do not concern this run
		i.live.Report, i.live.Said = reports.InstanceReport{Usage: i.live.Report.Usage.DiskOnly()}, ""
		i.selfReport = newSelfReport(time.Now(), 0)
		i.forgetPlayers()
	}
	i.launching = next.Phase == machine.Launching
	i.live.follow(next)
	if !i.live.Status.State.Running() && !i.launching {
		i.forgetPlayers()
	}
	i.built = buildInfoOf(i.entry)
	i.mu.Unlock()
	return effects
}

func isLaunch(e machine.Effect) bool { _, is := e.(machine.Launch); return is }

// logLimit is the size to which a console's log is limited, in bytes.
func logLimit(p fleet.Plan) int64 {
	return int64(cmp.Or(p.Limits.LogMiB, isolation.DefaultLogMiB)) << 20
}

// follow copies the public parts of a state.
func (l *Live) follow(s machine.State) {
	l.Status, l.Name, l.Grace, l.Orphan = s.Status, s.Placement.Name, grace(s), s.Orphan
	l.Port, l.Ports = s.Placement.Port, s.Placement.Ports
}

func grace(s machine.State) time.Duration {
	return time.Duration(s.Plan.Stop.GraceSeconds+fleet.KillAfterSeconds) * time.Second
}

// logChange logs every change of state, as a warning if the server ended unexpectedly and
// for debugging only if just details changed.
func (i *Instance) logChange(ctx context.Context, before, after fleet.Status) {
	level := slog.LevelInfo
	switch {
	case before.State == after.State && before.Reason == after.Reason:
		level = slog.LevelDebug
	case after.State == fleet.Crashed || after.State == fleet.Failed:
		level = slog.LevelWarn
	}
	attrs := []any{"name", i.entry.Machine.Placement.Name, "state", after.State, "reason", after.Reason}
	if port := i.entry.Machine.Placement.Port; port > 0 {
		attrs = append(attrs, "port", port)
	}
	if after.Message != "" {
		attrs = append(attrs, "message", after.Message)
	}
	i.log.Log(ctx, level, "state changed", attrs...)
}

func same(a, b fleet.Status) bool {
	return a.State == b.State && a.Reason == b.Reason && a.Message == b.Message && a.Generation == b.Generation &&
		a.PID == b.PID && a.Restarts == b.Restarts && a.ChangedAt.Equal(b.ChangedAt)
}

func (i *Instance) perform(ctx context.Context, e machine.Effect) {
	switch e := e.(type) {
	case machine.Prepare:
		prepCtx, cancel := context.WithCancel(ctx)
		i.cancel = cancel
		state, uid := i.entry.Machine, i.entry.UID
		i.helpers.Go(func() { defer cancel(); i.post(i.prepare(prepCtx, state, uid)) })
	case machine.Cancel:
		i.cancel()
	case machine.Launch:
		launchCtx, cancel := context.WithCancel(ctx)
		i.cancel = cancel
		entry, asleep := i.entry, i.listener
		i.helpers.Go(func() {
			defer cancel()
			asleep.close()
			i.stopping.Wait() // or the new run may receive the stop line of the previous one
			i.post(i.launch(ctx, launchCtx, entry))
		})
	case machine.Adopt:
		entry := i.entry
		i.helpers.Go(func() {
			if m, ok := i.adopt(ctx, entry); ok {
				i.post(m)
			}
		})
	case machine.AwaitSession:
		i.helpers.Go(func() {
			if i.deps.Deadline.Await(ctx) == nil {
				i.Send(machine.SessionReady(e))
			}
		})
	case machine.AwaitReady:
		i.awaitReady(ctx, e.Run)
	case machine.Watch:
		i.watch(ctx, e.Run)
	case machine.Stop:
		i.stop(ctx)
	case machine.Kill:
		i.kill(ctx)
	case machine.Wake:
		i.due = machine.Elapsed{Run: e.Run, Timer: e.Timer}
		i.timer.Reset(e.After)
	case machine.Clear:
		m := i.entry.Machine
		if err := i.deps.Workspace.Remove(m.Placement, m.Plan); err != nil {
			i.log.Warn("cannot remove the directory", "error", err)
		}
		i.releaseUID()
	case machine.Forget:
		i.forget()
	}
}

// forget removes everything that is kept besides the working directory.
func (i *Instance) forget() {
	i.done = true
	for _, dir := range []string{i.deps.RunDir(i.id), filepath.Dir(i.deps.TmpDir(i.id))} {
		if err := os.RemoveAll(dir); err != nil {
			i.log.Warn("cannot remove the directory", "error", err)
		}
	}
	if err := console.Remove(i.deps.LogPath(i.id)); err != nil {
		i.log.Warn("cannot remove the log", "error", err)
	}
	if err := i.deps.Secrets.Forget(i.id); err != nil {
		i.log.Warn("cannot remove the sealed secrets", "error", err)
	}
	if err := i.deps.Journal.Remove(i.id); err != nil {
		i.log.Warn("cannot remove the journal entry", "error", err)
	}
	i.releaseUID()
	i.deps.Forgotten(i.id)
	i.deps.sweepRuntimes()
}

// WriteLine types a line into the instance's console. Conflict if the instance does not run
// or does not read, Invalid for control characters other than tab.
func (i *Instance) WriteLine(line string) error {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if validate.HasControl(line) {
		return errs.Field("line", "must not contain control characters other than tab")
	}
	i.mu.Lock()
	p, state, isHeld := i.console, i.live.Status.State, i.live.Held
	i.mu.Unlock()
	if isHeld {
		return errHeld
	}
	if p == nil {
		return errs.New(errs.Conflict, "the instance %s: nothing reads its console", state.Text())
	}
	return p.WriteLine(line)
}
