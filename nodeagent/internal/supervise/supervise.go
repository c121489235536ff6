// Package supervise drives one instance: a goroutine that feeds events to the
// pure machine, journals the state it comes to, and performs the effects.
//
// Invariants:
//   - The journal is written before an effect is performed; a process' identity is
//     journalled as soon as it exists.
//   - Effects that take time run in a helper goroutine and answer with an event;
//     the driver itself never blocks on a server, a network or a disk for long.
//   - When the driver's context ends, processes run on and helpers have returned.
package supervise

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
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Instance drives one instance. Make it with New or Restore and run it once.
type Instance struct {
	kit *Kit
	id  fleet.InstanceID
	log *slog.Logger

	// Owned by Run's goroutine.
	entry   journal.Entry
	process runtime.Process
	began   time.Time    // when this agent started it, by the monotonic clock; zero for an adopted one
	guard   *guard.Guard // of an exclusive instance's process
	guards  int          // how many of them were replaced
	timer   *time.Timer
	due     machine.Elapsed
	force   chan struct{}      // not nil while a stop sequence runs; closing it kills
	asking  sync.WaitGroup     // the stop sequence, until it does nothing more
	cancel  context.CancelFunc // calls off what prepares or launches
	watched context.CancelFunc // ends what asks the process how it is; nil when nothing does
	done    bool
	// keeps is the plan whose content is kept in the cache; empty for none.
	keeps string
	// recording are the crashes that are being written down.
	recording map[string]bool
	// forgetful fires when an entry that could not be written is to be tried again;
	// nil when the journal is up to date.
	forgetful <-chan time.Time
	// unjournalled is why the journal is not up to date; nil when it is.
	unjournalled error

	helpers sync.WaitGroup

	mu      sync.Mutex
	mailbox []message
	live    Live
	console runtime.Process
	wake    chan struct{}
	hearing
	// remote is the generation's remote console; nil when it has none.
	remote *remote
	// built is what its directory was built of.
	built present
	// revealed are the values of its secrets.
	revealed revealed
	// players keeps the players that its run has told of; told is true when it has, and
	// playersUnkept when that could not be kept, which was told.
	players             presence.File
	told, playersUnkept bool
}

// message is an event with what its handling needs beside the pure state. Without
// an event it brings a guard.
type message struct {
	event   machine.Event
	process runtime.Process
	guard   *guard.Guard
	// run is the run of a guard that comes without an event.
	run int
	// began is when process was started, by the monotonic clock; zero for an adopted one.
	began time.Time
	token string
	// around is what its directory was built with, and comes with a token.
	around *journal.Surroundings
	// logFrom is where what process prints begins in the instance's output.
	logFrom int64
	// handled gets, once the event was handled, why the journal does not have what came
	// of it; nil when nobody waits for that. It has room for that.
	handled chan error
}

// New makes the driver of an instance that is not known yet.
func New(kit *Kit, id fleet.InstanceID) *Instance {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &Instance{
		kit: kit, id: id, log: kit.Log.With("instance", string(id)), timer: timer, wake: make(chan struct{}, 1),
		hearing: newHearing(time.Time{}, 0), players: playersOf(kit, id),
	}
}

// Restore makes the driver of a journalled instance and has it take up its work.
func Restore(kit *Kit, e journal.Entry) *Instance {
	i := New(kit, e.Machine.Placement.Instance)
	i.entry = e
	i.live.follow(e.Machine)
	i.hearing = newHearing(e.Machine.Status.StartedAt, readSequence(kit.RunDir(i.id)))
	i.remote = remoteOf(e.Machine.Plan, e.Machine.Placement, e.Around)
	i.built = presentOf(e)
	if i.live.Status.State.Running() {
		i.recallPlayers()
	}
	i.recall(e.Machine) // before anything is told of it
	i.keep()
	i.live.Held = kit.Held && e.Machine.Status.State != "" && !e.Machine.Status.State.Terminal()
	i.Send(machine.Recovered{})
	return i
}

// Release ends the hold on an instance that is about to be run.
func (i *Instance) Release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.live.Held = false
}

// Send gives the instance an event. It never blocks.
func (i *Instance) Send(e machine.Event) { i.post(message{event: e}) }

const held = "the host was restarted or this data directory is a copy: nothing is done with it before the node has joined"

var errHeld = errs.New(errs.Unavailable, "%s. Nothing of it runs here meanwhile: have etcd back, and it can be stopped", held)

// Order gives the instance an event and returns when what it decides is journalled
// and under way. Unavailable when ctx ends first, while the instance is held, and
// when it is under way but could not be journalled.
func (i *Instance) Order(ctx context.Context, e machine.Event) error {
	if i.Live().Held {
		return errHeld
	}
	m := message{event: e, handled: make(chan error, 1)}
	i.post(m)
	select {
	case err := <-m.handled:
		if err != nil {
			return &errs.Error{Op: "supervise.Order", Kind: errs.Unavailable, Err: err, Message: "it is under way, but could not be journalled: " +
				"if the agent ends before it has run its course, the next one knows nothing of it; look at the data directory's disk"}
		}
		return nil
	case <-ctx.Done():
		return errs.As(errs.Unavailable, "supervise.Order", ctx.Err())
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
			if ctx.Err() != nil { // what was called off by that is no failure of the instance
				i.leave()
				return
			}
			for _, m := range i.take() {
				i.handle(ctx, m)
			}
		case <-i.exited():
			p := i.process
			i.setProcess(nil)
			i.kit.Logs.Release(i.kit.LogPath(i.id))
			i.dismiss()
			end := i.exitEvent(i.entry.Machine.Run, p.Exit())
			if !i.began.IsZero() {
				end.Ran = time.Since(i.began)
			}
			i.handle(ctx, message{event: end})
		case <-i.unguarded():
			i.reguard(ctx)
		case <-i.timer.C:
			i.handle(ctx, message{event: i.elapsed()})
		case <-i.forgetful:
			i.remember()
		case <-ctx.Done():
			i.leave()
			return
		}
	}
	i.helpers.Wait()
}

// leave waits for the helpers and journals a process one of them started meanwhile.
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
		i.unwatch()
	}
	i.mu.Lock()
	i.console = p
	i.live.Attach = ""
	if p != nil {
		i.live.Attach = p.Attach()
	}
	i.mu.Unlock()
}

// handle takes the instance on by one event: decide, journal, tell, perform. An end is told
// before its directory is removed, which may take its time.
func (i *Instance) handle(ctx context.Context, m message) {
	if m.handled != nil {
		defer func() { m.handled <- i.unjournalled }()
	}
	if i.done {
		return
	}
	if m.event == nil {
		i.relieve(m.guard, m.run)
		return
	}
	m.event = i.explain(i.attribute(m.event))
	before, waited := i.entry.Machine.Status, i.entry.Machine.Next
	effects := i.advance(m)
	i.prefetch(ctx, waited)
	if m.process != nil {
		i.measure(ctx, m.process)
	}
	i.record()
	if after := i.entry.Machine.Status; !same(before, after) && after.State != "" {
		i.logChange(ctx, before, after)
		i.kit.Report(after)
		if after.State.Terminal() {
			i.kit.Logs.Wake(i.kit.LogPath(i.id)) // who looks at its console learns of the end
		}
	}
	for _, e := range effects {
		i.perform(ctx, e)
	}
}

// advance decides and journals.
func (i *Instance) advance(m message) []machine.Effect {
	next, effects := machine.Step(i.entry.Machine, m.event, i.kit.Now().UTC())
	if m.process == nil && m.token == "" && len(effects) == 0 && reflect.DeepEqual(next, i.entry.Machine) {
		return nil // news of what is known, as after every relist
	}
	i.entry.Machine = next
	i.keep()
	if m.process != nil {
		i.setProcess(m.process)
		i.guard, i.guards, i.began = m.guard, 0, m.began
		i.entry.Process, i.entry.ProcessRun = m.process.Identity(), next.Run
		if !m.began.IsZero() {
			i.entry.LogFrom = m.logFrom
		}
		i.kit.Logs.Keep(i.kit.LogPath(i.id), logLimit(next.Plan), !m.began.IsZero())
	}
	if m.token != "" {
		i.entry.Token, i.entry.Around = m.token, m.around
	}
	i.remember()
	launches := slices.ContainsFunc(effects, isLaunch)
	i.mu.Lock()
	if launches {
		i.forgetSequence()
	}
	if launches || next.Status.Generation != i.live.Status.Generation { // nothing said before concerns it
		i.live.Report, i.live.Said = fleet.InstanceReport{Usage: i.live.Report.Usage.DiskOnly()}, ""
		i.hearing = newHearing(time.Now(), 0)
		i.forgetPlayers()
	}
	i.launching = next.Phase == machine.Launching
	i.live.follow(next)
	if !i.live.Status.State.Running() && !i.launching {
		i.forgetPlayers()
	}
	i.remote = remoteOf(next.Plan, next.Placement, i.entry.Around)
	i.built = presentOf(i.entry)
	i.mu.Unlock()
	return effects
}

func isLaunch(e machine.Effect) bool { _, is := e.(machine.Launch); return is }

// logLimit is how much of a console is kept, in bytes.
func logLimit(p fleet.Plan) int64 { return int64(cmp.Or(p.Limits.LogMiB, fleet.DefaultLogMiB)) << 20 }

// follow takes over what a state says.
func (l *Live) follow(s machine.State) {
	l.Status, l.Name, l.Grace, l.Orphan = s.Status, s.Placement.Name, grace(s), s.Orphan
	l.Port, l.Ports = s.Placement.Port, s.Placement.Ports
}

func grace(s machine.State) time.Duration {
	return time.Duration(s.Plan.Stop.GraceSeconds+fleet.KillAfterSeconds) * time.Second
}

// logChange tells operators of every change of state, as a warning when the
// server ended unasked; a change of mere details is for whoever debugs.
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
		state := i.entry.Machine
		i.helpers.Go(func() { defer cancel(); i.post(i.prepare(prepCtx, state)) })
	case machine.Cancel:
		i.cancel()
	case machine.Launch:
		launchCtx, cancel := context.WithCancel(ctx)
		i.cancel = cancel
		entry := i.entry
		i.helpers.Go(func() {
			defer cancel()
			i.asking.Wait() // or the run may get the stop line of the one before
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
			if i.kit.Tenure.Await(ctx) == nil {
				i.Send(machine.Admitted(e))
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
		if err := i.kit.Workspace.Remove(m.Placement, m.Plan); err != nil {
			i.log.Warn("directory not removed", "error", err)
		}
	case machine.Forget:
		i.forget()
	}
}

// forget removes what is kept beside the working directory.
func (i *Instance) forget() {
	i.done = true
	for _, dir := range []string{i.kit.RunDir(i.id), filepath.Dir(i.kit.TmpDir(i.id))} {
		if err := os.RemoveAll(dir); err != nil {
			i.log.Warn("directory not removed", "error", err)
		}
	}
	if err := console.Remove(i.kit.LogPath(i.id)); err != nil {
		i.log.Warn("log not removed", "error", err)
	}
	if err := i.kit.Secrets.Forget(i.id); err != nil {
		i.log.Warn("sealed secrets not removed", "error", err)
	}
	if err := i.kit.Journal.Remove(i.id); err != nil {
		i.log.Warn("journal entry not removed", "error", err)
	}
	i.kit.Forgotten(i.id)
	i.kit.sweepLeft()
}

// WriteLine types a line into the instance's console. Conflict when it does not run, or
// does not read, Invalid for control characters other than tab.
func (i *Instance) WriteLine(line string) error {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	if fleet.HasControl(line) {
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
