package supervise

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/startvalue"
	"github.com/orreryhq/orrery/nodeagent/internal/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/render"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/stop"
	"github.com/orreryhq/orrery/nodeagent/internal/workspace"
)

const (
	// fetchPatience is how long content that nobody serves now is waited for, in each of
	// the machine's tries.
	fetchPatience = 2 * time.Second
	retryPause    = 250 * time.Millisecond
	tokenBytes    = 32
)

// prepare reads the plan and builds the directory.
func (i *Instance) prepare(ctx context.Context, s machine.State) message {
	defer trace.StartRegion(ctx, "prepare").End()
	fail := func(reason fleet.Reason, text string) message {
		return message{event: machine.Failed{Run: s.Run, Reason: reason, Message: i.masked(text)}}
	}
	plan, err := i.plan(ctx, s)
	if err != nil {
		return fail(fleet.ReasonPlanMissing, fmt.Sprintf("its plan %.12s could not be read", s.Placement.Plan))
	}
	if without := lacking(plan, s.Placement); len(without) > 0 {
		return fail(fleet.ReasonVariableMissing, fmt.Sprintf("%s: %s; give the group or the start a value", fleet.ReasonVariableMissing.Text(), strings.Join(without, ", ")))
	}
	i.kit.Workspace.Keep(i.id, &plan)
	around := i.kit.surroundings()
	provided, told := i.provided(ctx, plan, s.Placement)
	around.Variables = below(around.Variables, provided)
	values, address, notes := i.kit.values(plan, s.Placement, around)
	notes = append(notes, told...)
	held, err := i.reveal(ctx, plan, s.Placement)
	if err != nil {
		return fail(fleet.ReasonSecretMissing, text(fleet.ReasonSecretMissing, err))
	}
	image, _ := startvalue.Split(values, s.Placement.Values).Image(plan)
	maps.Copy(values, held)
	command, err := startvalue.Split(values, s.Placement.Values).Run(plan)
	if err != nil {
		return fail(fleet.ReasonStartValue, unsafe(err))
	}
	if strings.TrimSpace(command.Text) == "" { // what takes long comes after what is known to fail
		return fail(fleet.ReasonCommandMissing, text(fleet.ReasonCommandMissing, errNoCommand))
	}
	if err := i.makeReady(ctx, plan.Runtime, image); err != nil {
		reason := startReason(err, fleet.ReasonImageFetch)
		return message{event: machine.Failed{Run: s.Run, Reason: reason, Message: i.masked(text(reason, err)), Away: errors.Is(err, runtime.ErrAway)}}
	}
	token, hash := newToken()
	i.know(hash, held)
	request := i.kit.request(s.Placement, plan, values)
	built, err := i.construct(ctx, request)
	if err != nil {
		if ctx.Err() == nil { // otherwise it was called off, which is no failure
			i.log.Error("preparing failed", "error", i.masked(err.Error()))
		}
		var f *workspace.Failure
		if errors.As(err, &f) {
			return fail(f.Reason, f.Message)
		}
		return fail(fleet.ReasonPrepareFailed, fleet.ReasonPrepareFailed.Text())
	}
	for _, u := range command.Unknown {
		notes = append(notes, render.UnknownNote(u, "command"))
	}
	_, inEnv := workspace.Environ(i.kit.Host, request, "", "", i.kit.APIURL())
	notes = slices.Concat(notes, inEnv, built, i.kit.limitNotes(plan, command.Text))
	return message{token: token, around: around, event: machine.Prepared{
		Run: s.Run, Plan: plan, HostAddress: address, TokenHash: hash, Notes: i.masked(machine.Note(notes...)),
	}}
}

// lacking are the required variables that the start does not bring either.
func lacking(plan fleet.Plan, p fleet.Placement) []string {
	return slices.DeleteFunc(slices.Clone(plan.Missing), func(key string) bool { _, given := p.Values[key]; return given })
}

func newToken() (token, hash string) {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // it never fails
	token = hex.EncodeToString(b)
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// plan is the journalled plan when the generation was prepared before, so that it
// can be again without the store; else it is read, waiting for a store that is away.
func (i *Instance) plan(ctx context.Context, s machine.State) (fleet.Plan, error) {
	if s.Plan.Group != "" && s.Plan.Digest() == s.Placement.Plan {
		return s.Plan, nil
	}
	for {
		plan, err := i.kit.Plan(ctx, s.Placement.Plan)
		if err == nil || !errs.Is(err, errs.Unavailable) || !pause.For(ctx, retryPause) {
			return plan, err
		}
	}
}

// build builds the directory, waiting a little for content that nobody serves now.
func (i *Instance) build(ctx context.Context, r workspace.Request) ([]string, error) {
	deadline := time.Now().Add(fetchPatience)
	for {
		notes, err := i.kit.Workspace.Build(ctx, r)
		var f *workspace.Failure
		transient := errors.As(err, &f) && (f.Reason == fleet.ReasonTemplateFetch || f.Reason == fleet.ReasonArtifactFetch) && errs.Is(f.Err, errs.Unavailable)
		if !transient || time.Now().After(deadline) || !pause.For(ctx, retryPause) {
			return notes, err
		}
	}
}

// spec is what the runtime is asked to run; held are the values of its secrets. Invalid
// where a value given at start could become code. To find a process again, neither the
// secrets nor a command without an error are needed.
func (i *Instance) spec(e journal.Entry, held map[string]string) (runtime.Spec, error) {
	s := e.Machine
	dir := i.kit.Workspace.Dir(s.Placement, s.Plan)
	values, address, _ := i.kit.values(s.Plan, s.Placement, e.Around)
	container := containerOf(s.Plan, s.Placement, values, address)
	maps.Copy(values, held)
	command, err := startvalue.Split(values, s.Placement.Values).Run(s.Plan)
	request := i.kit.request(s.Placement, s.Plan, values)
	host, home := i.kit.Host, dir
	if container != nil { // what the host has is not in there
		host, home = workspace.Host{}, cmp.Or(container.Directory, runtime.Directory)
	}
	env, _ := workspace.Environ(host, request, home, e.Token, i.kit.APIURL())
	return runtime.Spec{
		InstanceID: string(i.id), Dir: dir, RunDir: i.kit.RunDir(i.id), TmpDir: i.kit.TmpDir(i.id), LogPath: i.kit.LogPath(i.id),
		Command: command.Text, Env: append(env, command.Env...), Limits: limits(s.Plan, command.Text), Confine: request.Plan.Confine, Container: container,
	}, err
}

// unsafe words the refusal of a value given at start.
func unsafe(err error) string {
	return fmt.Sprintf("%s: %s %s", fleet.ReasonStartValue.Text(), errs.FieldOf(err), errs.MessageOf(err))
}

// errNoCommand refuses a start without a command.
var errNoCommand = errs.New(errs.Invalid, "the command is empty once its placeholders are replaced: correct the group's command, or its variables")

// launch fills in the values, checks the ports and starts the process, unless ctx ends, which is within agent:
// then what was started all the same is ended, if it is not in the answer.
func (i *Instance) launch(agent, ctx context.Context, e journal.Entry) message {
	defer trace.StartRegion(ctx, "launch").End()
	run := e.Machine.Run
	fail := func(reason fleet.Reason, err error) message {
		if ctx.Err() == nil { // otherwise it was called off, which is no failure
			i.log.Error("starting failed", "error", i.masked(err.Error()))
		}
		return message{event: machine.Failed{Run: run, Reason: reason, Message: i.masked(text(reason, err)), Away: errors.Is(err, runtime.ErrAway)}}
	}
	if err := answerable(e.Machine.Plan, e.Machine.Placement); err != nil {
		return fail(fleet.ReasonCheckImpossible, err)
	}
	within := ctx
	if e.Machine.Plan.Exclusive() {
		var cancel context.CancelFunc
		within, cancel = i.kit.Tenure.Within(ctx)
		defer cancel()
		switch err := i.entitled(within, e.Machine.Placement); {
		case err == nil:
		case errs.Is(err, errs.NotFound):
			return fail(fleet.ReasonNodeLost, err)
		default:
			return message{event: machine.Withheld{Run: run}}
		}
	}
	held, err := i.held(ctx, e.Machine.Plan, e.Machine.Placement)
	if err != nil {
		return fail(fleet.ReasonSecretMissing, err)
	}
	spec, err := i.spec(e, held)
	if err != nil {
		return message{event: machine.Failed{Run: run, Reason: fleet.ReasonStartValue, Message: i.masked(unsafe(err))}}
	}
	if strings.TrimSpace(spec.Command) == "" {
		return fail(fleet.ReasonCommandMissing, errNoCommand)
	}
	switch err := i.awaitPorts(within, e.Machine); { // last: all before may have taken its time
	case err == nil, within.Err() != nil && ctx.Err() == nil: // the session ends, which the start sees
	case errs.Is(err, errs.Exhausted):
		return fail(fleet.ReasonPortTaken, err)
	default:
		return fail(fleet.ReasonStartFailed, err)
	}
	if err := os.MkdirAll(filepath.Dir(spec.LogPath), 0o750); err != nil {
		return fail(diskOr(fleet.ReasonStartFailed, err), err)
	}
	i.notePast(spec.RunDir)
	from := size(spec.LogPath)
	var p runtime.Process
	var g *guard.Guard
	err = patiently(ctx, func() error {
		rt, err := i.kit.offered(e.Machine.Plan.Runtime) // it was when it was prepared, maybe by an agent before this one
		if err == nil {
			p, g, err = i.startSecured(ctx, within, e.Machine, rt, spec)
		}
		return err
	})
	if err != nil && ctx.Err() != nil && agent.Err() == nil {
		i.sweep(agent, i.kit.adopting(e.Machine.Plan.Runtime), spec)
	}
	if errors.Is(err, errNoSession) {
		return message{event: machine.Withheld{Run: run}}
	}
	var f *workspace.Failure
	if errors.As(err, &f) {
		return message{event: machine.Failed{Run: run, Reason: f.Reason, Message: i.masked(f.Message)}}
	}
	if err != nil {
		return fail(startReason(err, diskOr(fleet.ReasonStartFailed, err)), err)
	}
	now := time.Now()
	return message{process: p, guard: g, began: now, logFrom: from, event: machine.Started{Run: run, PID: p.Identity().Server.PID, At: i.kit.Now().UTC()}}
}

// notePast notes under which past of the store the run begins. One that cannot be
// noted is never taken for one that the store should know.
func (i *Instance) notePast(runDir string) {
	path := filepath.Join(runDir, journal.PastFile)
	err := errors.Join(os.MkdirAll(runDir, 0o700), os.WriteFile(path, []byte(i.kit.Past()), 0o600))
	if err != nil {
		i.log.Warn("the store's past is not noted", "error", errors.Join(err, os.RemoveAll(path)))
	}
}

func diskOr(reason fleet.Reason, err error) fleet.Reason {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fleet.ReasonDiskFull
	}
	return reason
}

func text(reason fleet.Reason, err error) string {
	if m := errs.MessageOf(err); m != errs.MessageOf(nil) {
		return m
	}
	var path *fs.PathError
	if errors.Is(err, fs.ErrPermission) && errors.As(err, &path) {
		return fmt.Sprintf("%s: the agent's user may not use %s (%s, %v): give it the permission", reason.Text(), path.Path, path.Op, path.Err)
	}
	return reason.Text()
}

// adopt looks for the process of an earlier agent. Where that one died before it
// could journal the process, or the entry was lost, whatever is left is ended. ok is
// false when ctx ended first.
func (i *Instance) adopt(ctx context.Context, e journal.Entry) (m message, ok bool) {
	run, id := e.Machine.Run, e.Process
	unknown := e.ProcessRun != run
	if unknown {
		id = runtime.Identity{BootID: i.kit.BootID}
	}
	spec, _ := i.spec(e, nil)
	p, ok := i.seek(ctx, i.kit.adopting(e.Machine.Plan.Runtime), spec, id)
	if !ok {
		return message{}, false
	}
	if !unknown && p.Running() {
		return i.secured(ctx, e.Machine, message{process: p, event: machine.Found{Run: run, PID: p.Identity().Server.PID}}), true
	}
	select { // what is left is cleared away first, which takes a moment
	case <-p.Exited():
	case <-ctx.Done():
		return message{}, false
	}
	exit := p.Exit()
	if unknown && (!exit.Known || e.Machine.Phase == machine.Launching) { // then it is of the run before
		return message{event: machine.Lost{Run: run, Rebooted: i.kit.Rebooted}}, true
	}
	return message{event: i.ending(run, exit)}, true
}

// sweep ends what a start that was called off may have left.
func (i *Instance) sweep(ctx context.Context, rt runtime.Runtime, s runtime.Spec) {
	if p, ok := i.seek(ctx, rt, s, runtime.Identity{BootID: i.kit.BootID}); ok {
		i.finishOff(ctx, p)
	}
}

// seek adopts a process. A host on which nobody can look at it now says nothing
// about it: then it is tried again until ctx ends, and ok is false.
func (i *Instance) seek(ctx context.Context, rt runtime.Runtime, s runtime.Spec, id runtime.Identity) (p runtime.Process, ok bool) {
	for told := false; ; told = true {
		p, err := rt.Adopt(ctx, s, id)
		if err == nil {
			return p, true
		}
		if !told {
			i.log.Error("it cannot be told whether the process lives: left alone, trying on", "error", err)
		}
		if !pause.For(ctx, retryPause) {
			return nil, false
		}
	}
}

// ending is the event for a process that ended while no agent watched.
func (i *Instance) ending(run int, exit runtime.Exit) machine.Event {
	if exit.Known {
		return i.exitEvent(run, exit)
	}
	return machine.Lost{Run: run, Rebooted: exit.Rebooted}
}

// exitEvent is the event for an end. Its time is of the agent's clock: the runtime has
// measured how long ago it was.
func (i *Instance) exitEvent(run int, e runtime.Exit) machine.Exited {
	at := i.kit.Now()
	if !e.At.IsZero() {
		at = at.Add(-time.Since(e.At))
	}
	return machine.Exited{Run: run, At: at.UTC(), Exit: fleet.Exit{
		Code: e.Code, Signal: e.Signal, Known: e.Known, OOM: e.OOM, LimitMiB: e.LimitMiB, Hangup: e.Hangup,
	}}
}

// stop begins the plan's stop sequence.
func (i *Instance) stop(ctx context.Context) {
	i.unwatch()
	p, force, plan := i.process, make(chan struct{}), i.entry.Machine.Plan.Stop
	i.force = force
	policy := stop.Policy{
		Line: plan.Command, Grace: time.Duration(plan.GraceSeconds) * time.Second,
		Signal: unix.SignalNum("SIG" + plan.Signal), KillAfter: fleet.KillAfterSeconds * time.Second,
	}
	if policy.Signal == 0 {
		policy.Signal = unix.SIGTERM
	}
	i.asking.Add(1)
	i.helpers.Go(func() {
		defer i.asking.Done()
		if err := stop.Gracefully(ctx, p, policy, force); err != nil && ctx.Err() == nil {
			i.log.Error("stopping failed, killing it", "error", err)
			i.finishOff(ctx, p)
		}
	})
}

// kill ends everything at once, cutting a stop sequence short.
func (i *Instance) kill(ctx context.Context) {
	i.unwatch()
	if i.force != nil {
		close(i.force)
		i.force = nil
		return
	}
	p := i.process
	i.helpers.Go(func() { i.finishOff(ctx, p) })
}

// finishOff kills a run. A host that refuses it is asked again until it is gone or
// ctx ends: nobody gives the order a second time.
func (i *Instance) finishOff(ctx context.Context, p runtime.Process) {
	for told := false; ; told = true {
		err := p.Kill(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !told {
			i.log.Error("killing failed, trying on", "error", err)
		}
		if !pause.For(ctx, retryPause) {
			return
		}
	}
}
