package driver

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
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/stop"
	"github.com/orreryhq/orrery/nodeagent/internal/node/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

const (
	// fetchPatience is how long each attempt of the machine waits for content that no source
	// serves.
	fetchPatience = 2 * time.Second
	retryPause    = 250 * time.Millisecond
	tokenBytes    = 32
)

// prepare reads the plan and builds the directory. uid is the id that the instance had.
func (i *Instance) prepare(ctx context.Context, s machine.State, uid int) message {
	defer trace.StartRegion(ctx, "prepare").End()
	fail := func(reason fleet.Reason, text string) message {
		return message{event: machine.Failed{Run: s.Run, Reason: reason, Message: i.masked(text)}}
	}
	plan, err := i.plan(ctx, s)
	if err != nil {
		return fail(fleet.ReasonPlanMissing, fmt.Sprintf("its plan %.12s could not be read", s.Placement.Plan))
	}
	if without := missingVariables(plan, s.Placement); len(without) > 0 {
		return fail(fleet.ReasonVariableMissing, fmt.Sprintf("%s: %s; give the group or the start a value", fleet.ReasonVariableMissing.Text(), strings.Join(without, ", ")))
	}
	if err := i.awaitTurn(ctx, s.Run, plan); err != nil {
		return fail(fleet.ReasonPrepareFailed, fleet.ReasonPrepareFailed.Text())
	}
	i.deps.Workspace.Keep(i.id, &plan)
	nodeValues := i.deps.nodeValues(plan)
	provided, providerNotes := i.providedValues(ctx, plan, s.Placement)
	nodeValues.Variables = mergeVariables(nodeValues.Variables, provided)
	values, address, notes := i.deps.values(plan, s.Placement, nodeValues)
	notes = append(notes, providerNotes...)
	if err := i.deps.admit(plan, containerOf(plan, s.Placement, values, address)); err != nil {
		return fail(fleet.ReasonNodePolicy, text(fleet.ReasonNodePolicy, err))
	}
	held, err := i.resolveSecrets(ctx, plan, s.Placement)
	if err != nil {
		return fail(fleet.ReasonSecretMissing, text(fleet.ReasonSecretMissing, err))
	}
	image, _ := startvalue.Split(values, s.Placement.Values).Image(plan)
	maps.Copy(values, held)
	command, err := startvalue.Split(values, s.Placement.Values).Run(plan)
	if err != nil {
		return fail(fleet.ReasonStartValue, startValueMessage(err))
	}
	if strings.TrimSpace(command.Text) == "" { // cheap checks come before slow work
		return fail(fleet.ReasonCommandMissing, text(fleet.ReasonCommandMissing, errNoCommand))
	}
	if err := i.prepareRuntime(ctx, plan.Runtime, image); err != nil {
		reason := startReason(err, fleet.ReasonImageFetch)
		return message{event: machine.Failed{Run: s.Run, Reason: reason, Message: i.masked(text(reason, err)), Away: errors.Is(err, runtime.ErrUnreachable)}}
	}
	if uid, err = i.takeUID(ctx, s.Run, plan, s.Placement, uid); err != nil {
		return fail(failureOf(err, fleet.ReasonPrepareFailed))
	}
	token, hash := newToken()
	i.keepSecrets(hash, held)
	request := i.deps.request(s.Placement, plan, values, uid)
	var built []string
	if !s.Slept || plan.Static || !i.deps.Workspace.Exists(s.Placement, plan) {
		built, err = i.buildExclusive(ctx, request)
	} else {
		err = i.give(ctx, request)
	}
	if err != nil {
		if ctx.Err() == nil { // otherwise it was canceled
			i.log.Error("cannot prepare the instance", "error", i.masked(err.Error()))
		}
		return fail(failureOf(err, fleet.ReasonPrepareFailed))
	}
	for _, u := range command.Unknown {
		notes = append(notes, render.UnknownNote(u, "command"))
	}
	_, inEnv := workspace.Environ(i.deps.Host, request, "", "", i.deps.apiURL(plan))
	notes = slices.Concat(notes, inEnv, built, i.deps.limitNotes(plan, command.Text))
	return message{token: token, nodeValues: nodeValues, uid: uid, event: machine.Prepared{
		Run: s.Run, Plan: plan, HostAddress: address, TokenHash: hash, Notes: i.masked(machine.Note(notes...)),
	}}
}

// missingVariables lists the required variables without a value, including those that the start provides.
func missingVariables(plan fleet.Plan, p fleet.Placement) []string {
	return slices.DeleteFunc(slices.Clone(plan.Missing), func(key string) bool { _, given := p.Values[key]; return given })
}

func newToken() (token, hash string) {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails
	token = hex.EncodeToString(b)
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}

// plan returns the journalled plan if the generation was prepared before, so that it can be
// prepared again without the store. Otherwise it reads the plan and waits for the store.
func (i *Instance) plan(ctx context.Context, s machine.State) (fleet.Plan, error) {
	if s.Plan.Group != "" && s.Plan.Digest() == s.Placement.Plan {
		return s.Plan, nil
	}
	for {
		plan, err := i.deps.Plan(ctx, s.Placement.Plan)
		if err == nil || !errs.Is(err, errs.Unavailable) || !pause.For(ctx, retryPause) {
			return plan, err
		}
	}
}

// buildWithRetry builds the directory. It waits up to fetchPatience for content that no source serves.
func (i *Instance) buildWithRetry(ctx context.Context, r workspace.Request) ([]string, error) {
	deadline := time.Now().Add(fetchPatience)
	for {
		notes, err := i.deps.Workspace.Build(ctx, r)
		var f *workspace.Failure
		transient := errors.As(err, &f) && (f.Reason == fleet.ReasonTemplateFetch || f.Reason == fleet.ReasonArtifactFetch) && errs.Is(f.Err, errs.Unavailable)
		if !transient || time.Now().After(deadline) || !pause.For(ctx, retryPause) {
			return notes, err
		}
	}
}

// spec is the run for the runtime. held are the values of the instance's secrets. The error is
// Invalid if a value given at start could be interpreted as code. Adopting a process needs
// neither the secrets nor a valid command.
func (i *Instance) spec(e journal.Entry, held map[string]string) (runtime.Spec, error) {
	s := e.Machine
	dir := i.deps.Workspace.Dir(s.Placement, s.Plan)
	values, address, _ := i.deps.values(s.Plan, s.Placement, e.NodeValues)
	container := containerOf(s.Plan, s.Placement, values, address)
	maps.Copy(values, held)
	command, err := startvalue.Split(values, s.Placement.Values).Run(s.Plan)
	request := i.deps.request(s.Placement, s.Plan, values, e.UID)
	host, home := i.deps.Host, dir
	if container != nil { // the host's values do not apply there
		host, home = workspace.Host{}, cmp.Or(container.Directory, runtime.Directory)
	}
	env, _ := workspace.Environ(host, request, home, e.Token, i.deps.apiURL(s.Plan))
	return runtime.Spec{
		InstanceID: string(i.id), Dir: dir, RunDir: i.deps.RunDir(i.id), TmpDir: i.deps.TmpDir(i.id), LogPath: i.deps.LogPath(i.id),
		Command: command.Text, Env: append(env, command.Env...), Limits: limits(s.Plan, command.Text), Confine: request.Plan.Confine, UID: request.UID, Container: container,
	}, err
}

// startValueMessage is the message for a refused value given at start.
func startValueMessage(err error) string {
	return fmt.Sprintf("%s: %s %s", fleet.ReasonStartValue.Text(), errs.FieldOf(err), errs.MessageOf(err))
}

// errNoCommand rejects a start without a command.
var errNoCommand = errs.New(errs.Invalid, "the command is empty once its placeholders are replaced: correct the group's command, or its variables")

// launch checks the ports and starts the process, unless ctx ends. agent outlives ctx: with
// it launch ends a process that was started although ctx ended, unless it returns it.
func (i *Instance) launch(agent, ctx context.Context, e journal.Entry) message {
	defer trace.StartRegion(ctx, "launch").End()
	run := e.Machine.Run
	fail := func(reason fleet.Reason, err error) message {
		if ctx.Err() == nil { // otherwise it was canceled
			i.log.Error("cannot start the instance", "error", i.masked(err.Error()))
		}
		return message{event: machine.Failed{Run: run, Reason: reason, Message: i.masked(text(reason, err)), Away: errors.Is(err, runtime.ErrUnreachable)}}
	}
	if err := checkPossible(e.Machine.Plan, e.Machine.Placement); err != nil {
		return fail(fleet.ReasonCheckImpossible, err)
	}
	within := ctx
	if e.Machine.Plan.Exclusive() {
		var cancel context.CancelFunc
		within, cancel = i.deps.Deadline.Within(ctx)
		defer cancel()
		switch err := i.claimStart(within, e.Machine.Placement); {
		case err == nil:
		case errs.Is(err, errs.NotFound):
			return fail(fleet.ReasonNodeLost, err)
		default:
			return message{event: machine.NoSession{Run: run}}
		}
	}
	if refused := i.migrate(ctx, &e); refused != nil {
		i.log.Error("cannot give the instance its directory", "error", refused)
		reason, text := failureOf(refused, fleet.ReasonStartFailed)
		return message{event: machine.Failed{Run: run, Reason: reason, Message: text}}
	}
	held, err := i.runSecrets(ctx, e.Machine.Plan, e.Machine.Placement)
	if err != nil {
		return fail(fleet.ReasonSecretMissing, err)
	}
	spec, err := i.spec(e, held)
	if err != nil {
		return message{event: machine.Failed{Run: run, Reason: fleet.ReasonStartValue, Message: i.masked(startValueMessage(err))}}
	}
	if strings.TrimSpace(spec.Command) == "" {
		return fail(fleet.ReasonCommandMissing, errNoCommand)
	}
	if err := i.deps.admit(e.Machine.Plan, spec.Container); err != nil { // settings and links may have changed since the preparation
		return fail(fleet.ReasonNodePolicy, err)
	}
	switch err := i.awaitPorts(within, e.Machine); { // last, because it may wait
	case err == nil, within.Err() != nil && ctx.Err() == nil: // startGuarded checks the session
	case errs.Is(err, errs.Exhausted):
		return fail(fleet.ReasonPortTaken, err)
	default:
		return fail(fleet.ReasonStartFailed, err)
	}
	if err := os.MkdirAll(filepath.Dir(spec.LogPath), 0o750); err != nil {
		return fail(diskOr(fleet.ReasonStartFailed, err), err)
	}
	i.writeHistory(spec.RunDir)
	from := size(spec.LogPath)
	var p runtime.Process
	var g *guard.Guard
	err = retryAway(ctx, func() error {
		rt, err := i.deps.offered(e.Machine.Plan.Runtime) // it may be gone since the preparation
		if err == nil {
			p, g, err = i.startGuarded(ctx, within, e.Machine, rt, spec)
		}
		return err
	})
	if err != nil && ctx.Err() != nil && agent.Err() == nil {
		i.killLeftovers(agent, i.deps.adopter(e.Machine.Plan.Runtime), spec)
	}
	if errors.Is(err, errNoSession) {
		return message{event: machine.NoSession{Run: run}}
	}
	var f *workspace.Failure
	if errors.As(err, &f) {
		return message{event: machine.Failed{Run: run, Reason: f.Reason, Message: i.masked(f.Message)}}
	}
	if err != nil {
		return fail(startReason(err, diskOr(fleet.ReasonStartFailed, err)), err)
	}
	now := time.Now()
	return message{process: p, guard: g, began: now, logFrom: from, uid: e.UID, event: machine.Started{Run: run, PID: p.Identity().Server.PID, At: i.deps.Now().UTC()}}
}

// writeHistory stores which history of the store the run began under. If that fails, the run is
// never considered one that the store should know.
func (i *Instance) writeHistory(runDir string) {
	path := filepath.Join(runDir, journal.HistoryFile)
	err := errors.Join(os.MkdirAll(runDir, 0o700), os.WriteFile(path, []byte(i.deps.History()), 0o600))
	if err != nil {
		i.log.Warn("cannot store which history of the store the run began under", "error", errors.Join(err, os.RemoveAll(path)))
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
		return fmt.Sprintf("%s: the agent's user may not use %s (%s, %v): grant the permission", reason.Text(), path.Path, path.Op, path.Err)
	}
	return reason.Text()
}

// adopt looks for the process of an earlier agent. If that agent died before it journalled
// the process, or the entry was lost, adopt ends what is left. ok is false if ctx ended first.
func (i *Instance) adopt(ctx context.Context, e journal.Entry) (m message, ok bool) {
	run, id := e.Machine.Run, e.Process
	unknown := e.ProcessRun != run
	if unknown {
		id = runtime.Identity{BootID: i.deps.BootID}
	}
	spec, _ := i.spec(e, nil)
	p, ok := i.adoptWithRetry(ctx, i.deps.adopter(e.Machine.Plan.Runtime), spec, id)
	if !ok {
		return message{}, false
	}
	if !unknown && p.Running() {
		return i.guardAdopted(ctx, e.Machine, message{process: p, event: machine.Found{Run: run, PID: p.Identity().Server.PID}}), true
	}
	select { // leftovers are killed first
	case <-p.Exited():
	case <-ctx.Done():
		return message{}, false
	}
	exit := p.Exit()
	if unknown && (!exit.Known || e.Machine.Phase == machine.Launching) { // the exit is that of the previous run
		return message{event: machine.Lost{Run: run, Rebooted: i.deps.Rebooted}}, true
	}
	return message{event: i.unwatchedExit(run, exit)}, true
}

// killLeftovers ends what a canceled start may have left.
func (i *Instance) killLeftovers(ctx context.Context, rt runtime.Runtime, s runtime.Spec) {
	if p, ok := i.adoptWithRetry(ctx, rt, s, runtime.Identity{BootID: i.deps.BootID}); ok {
		i.killUntilGone(ctx, p)
	}
}

// adoptWithRetry adopts a process. It retries until ctx ends if the host cannot tell whether the process
// exists; ok is then false.
func (i *Instance) adoptWithRetry(ctx context.Context, rt runtime.Runtime, s runtime.Spec, id runtime.Identity) (p runtime.Process, ok bool) {
	for logged := false; ; logged = true {
		p, err := rt.Adopt(ctx, s, id)
		if err == nil {
			return p, true
		}
		if !logged {
			i.log.Error("cannot tell whether the process exists: it is left alone, retrying", "error", err)
		}
		if !pause.For(ctx, retryPause) {
			return nil, false
		}
	}
}

// unwatchedExit is the event for a process that ended while no agent ran.
func (i *Instance) unwatchedExit(run int, exit runtime.Exit) machine.Event {
	if exit.Known {
		return i.exitEvent(run, exit)
	}
	return machine.Lost{Run: run, Rebooted: exit.Rebooted}
}

// exitEvent is the event for an exit. The runtime measures by the monotonic clock how long ago
// it was.
func (i *Instance) exitEvent(run int, e runtime.Exit) machine.Exited {
	at := i.deps.Now()
	if !e.At.IsZero() {
		at = at.Add(-time.Since(e.At))
	}
	return machine.Exited{Run: run, At: at.UTC(), Exit: fleet.Exit{
		Code: e.Code, Signal: e.Signal, Known: e.Known, OOM: e.OOM, LimitMiB: e.LimitMiB, Hangup: e.Hangup,
	}}
}

// stop starts the plan's stop sequence.
func (i *Instance) stop(ctx context.Context) {
	i.endChecks()
	p, force, plan := i.process, make(chan struct{}), i.entry.Machine.Plan.Stop
	i.force = force
	policy := stop.Policy{
		Line: plan.Command, Grace: time.Duration(plan.GraceSeconds) * time.Second,
		Signal: unix.SignalNum("SIG" + plan.Signal), KillAfter: fleet.KillAfterSeconds * time.Second,
	}
	if policy.Signal == 0 {
		policy.Signal = unix.SIGTERM
	}
	i.stopping.Add(1)
	i.helpers.Go(func() {
		defer i.stopping.Done()
		if err := stop.Gracefully(ctx, p, policy, force); err != nil && ctx.Err() == nil {
			i.log.Error("cannot stop the process: killing it", "error", err)
			i.killUntilGone(ctx, p)
		}
	})
}

// kill ends the process at once and cuts a stop sequence short.
func (i *Instance) kill(ctx context.Context) {
	i.endChecks()
	if i.force != nil {
		close(i.force)
		i.force = nil
		return
	}
	p := i.process
	i.helpers.Go(func() { i.killUntilGone(ctx, p) })
}

// killUntilGone kills a run. It retries until the run is gone or ctx ends, because the order is
// given only once.
func (i *Instance) killUntilGone(ctx context.Context, p runtime.Process) {
	for logged := false; ; logged = true {
		err := p.Kill(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !logged {
			i.log.Error("cannot kill the process: retrying", "error", err)
		}
		if !pause.For(ctx, retryPause) {
			return
		}
	}
}
