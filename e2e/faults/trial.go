package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/e2e/faults/check"
	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// startPatience limits the time until the first settled state.
	startPatience = 60 * time.Second
	// convergeWithin is the promised time from the last fault to the declared counts.
	convergeWithin = 30 * time.Second
	// restFor is how long the settled state must last.
	restFor = 2 * time.Second
)

// trial is one run of one scenario.
type trial struct {
	scenario plan.Scenario
	dir      string
	programs site.Programs
	out      io.Writer
	start    time.Time
	// story is what happens; nil means scenes.
	story func(context.Context) []string

	site    *site.Site
	api     *api
	store   *store.Client
	history history.Recorder
	disks   map[string]*disk // by node

	saying sync.Mutex // guards out

	mu     sync.Mutex
	killed map[int]bool // processes of instances that the plan killed
	broken []string     // problems found while faults were active
	hurts  []spell      // the applied faults

	calm bool        // crashes have stopped
	over atomic.Bool // the faults are over

	// Results for the report.
	converged time.Duration
	runs      int
	moves     int // that were completed
	revisions int64
}

// run performs the scenario and returns the problems.
func (t *trial) run(ctx context.Context) []string {
	t.killed, t.disks = map[int]bool{}, map[string]*disk{}
	if err := errors.Join(os.MkdirAll(t.recordDir(), 0o755), site.Open(t.recordDir())); err != nil { // servers run as other users
		return []string{err.Error()}
	}
	err := t.mount()
	defer func() {
		for _, d := range t.disks {
			_ = d.unmount()
		}
	}()
	if err != nil {
		return collect(err)
	}
	t.site, err = site.Start(ctx, t.options())
	broken := collect(err)
	if err == nil {
		broken = t.withStore(ctx)
	}
	for _, p := range t.site.Processes() {
		broken = append(broken, p.Ended()...)
	}
	if err := t.site.Close(); err != nil {
		broken = append(broken, "at the end: "+err.Error())
	}
	return broken
}

// mount mounts a disk for each node whose disk will be filled.
func (t *trial) mount() error {
	for _, f := range t.scenario.Faults {
		if f.Kind != plan.FillDisk || t.disks[f.Target] != nil {
			continue
		}
		d, err := mountDisk(filepath.Join(t.dir, f.Target))
		if err != nil {
			return fmt.Errorf("a disk for %s: %w", f.Target, err)
		}
		t.disks[f.Target] = d
	}
	return nil
}

func collect(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}

func (t *trial) recordDir() string { return filepath.Join(t.dir, "record") }

func (t *trial) options() site.Options {
	s := t.scenario
	return site.Options{
		Dir: t.dir, Programs: t.programs, Members: s.Members, Schedulers: s.Schedulers, Enforcers: s.Enforcers,
		Gateways: s.Gateways, Sources: s.Sources, Nodes: s.Nodes, MemoryMiB: s.MemoryMiB, CPU: 100000, TTL: plan.TTL,
		Namespaces: s.Nodes > 1, Clocks: s.Clocks,
	}
}

// withStore records etcd's history during the scenario and then checks it.
func (t *trial) withStore(ctx context.Context) []string {
	var err error
	if t.store, err = store.Dial(t.site.Endpoints(), store.Options{}); err != nil {
		return collect(err)
	}
	defer t.store.Close()
	t.api = newAPI(t.site.Gateways(), t.site.PasswordFile())
	defer t.api.close()
	recording, stop := context.WithCancel(ctx)
	var recorder sync.WaitGroup
	recorder.Go(func() { t.history.Run(recording, t.store) })
	story := t.scenes
	if t.story != nil {
		story = t.story
	}
	broken := story(ctx)
	stop()
	recorder.Wait()
	return append(broken, t.check()...)
}

// scenes performs the steps of a run.
func (t *trial) scenes(ctx context.Context) []string {
	if err := t.declare(ctx); err != nil {
		return collect(err)
	}
	if left := t.settle(ctx, startPatience, func(g plan.Group) int { return g.Count }); len(left) > 0 {
		return append([]string{"it never settled, before any fault:"}, left...)
	}
	t.log("settled, the faults begin")
	if err := os.WriteFile(filepath.Join(t.recordDir(), record.Storm), nil, 0o644); err != nil {
		return collect(err)
	}
	if t.operates() {
		playing, stop := context.WithCancel(ctx)
		var players sync.WaitGroup
		defer players.Wait()
		defer stop()
		players.Go(func() { t.play(playing) })
	}
	t.hurt(ctx)
	healed := time.Now()
	t.log("the faults are over")
	t.over.Store(true)
	if err := t.redeclare(ctx); err != nil {
		return collect(err)
	}
	if err := t.endDrains(ctx); err != nil {
		return collect(err)
	}
	if err := t.endMoves(ctx); err != nil {
		return collect(err)
	}
	left := t.settle(ctx, t.patience()-time.Since(healed), func(g plan.Group) int { return g.Final })
	t.converged = time.Since(healed)
	if len(left) > 0 {
		return append([]string{fmt.Sprintf("it did not converge within %v of the last fault:", t.patience())}, left...)
	}
	return t.rest(ctx)
}

// rest checks that the settled state lasts.
func (t *trial) rest(ctx context.Context) []string {
	for end := time.Now().Add(restFor); time.Now().Before(end) && ctx.Err() == nil; pause.For(ctx, 100*time.Millisecond) {
		if left := t.unsettled(ctx, func(g plan.Group) int { return g.Final }); len(left) > 0 {
			return append([]string{"it had settled and then changed:"}, left...)
		}
	}
	return nil
}

// declare creates the groups once the API answers.
func (t *trial) declare(ctx context.Context) error {
	for _, g := range t.scenario.Groups {
		if g.Template {
			if err := t.template(g.Name); err != nil {
				return err
			}
		}
		if err := t.persist(ctx, startPatience, http.MethodPost, "/api/v1/groups", t.spec(g)); err != nil {
			return err
		}
		if g.ByHand { // only once, because a repetition would start twice as many
			if _, err := t.api.do(ctx, http.MethodPost, "/api/v1/groups/"+g.Name+"/start", map[string]int{"count": g.Count}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Each group with a template has a template with one file.
const (
	templateGroup = "faults"
	templateFile  = "who.txt"
)

// template creates a group's template.
func (t *trial) template(name string) error {
	dir := filepath.Join(t.site.TemplateDir(), templateGroup, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, templateFile), []byte("%INSTANCE_NAME% %PORT%\n"), 0o644)
}

// portsPerGroup is the size of each group's port range.
const portsPerGroup = 20

func (t *trial) spec(g plan.Group) map[string]any {
	command := fmt.Sprintf("exec %s -record %s", t.programs["witness"], t.recordDir())
	if g.Static {
		command += " -static"
	}
	if g.Crash > 0 {
		command += " -crash " + g.Crash.String()
	}
	if g.Template {
		command += " -expect " + templateFile
	}
	first := 31000
	for n, other := range t.scenario.Groups {
		if other.Name == g.Name {
			first += n * portsPerGroup
		}
	}
	spec := map[string]any{
		"name": g.Name, "command": command, "static": g.Static, "minInstances": g.Count, "maxInstances": 0, "memoryMb": g.MemoryMiB,
		"portRangeStart": first, "portRangeEnd": first + portsPerGroup - 1,
		"readiness": map[string]any{"type": "port"}, "shutdownGraceSeconds": 5,
	}
	if g.Template {
		spec["templates"], spec["fileModifications"] = []string{templateGroup + "/" + g.Name}, []string{templateFile}
	}
	if len(g.Names) > 0 {
		spec["staticInstanceNames"] = g.Names
	}
	if g.ByHand {
		spec["minInstances"] = 0
	}
	if g.ReplaceOnLoss {
		spec["onNodeLoss"] = string(fleet.NodeLossReplace)
	}
	return spec
}

// redeclare ends the crashes and sets the final counts.
func (t *trial) redeclare(ctx context.Context) error {
	if err := os.Remove(filepath.Join(t.recordDir(), record.Storm)); err != nil {
		return err
	}
	t.calm = true
	for _, g := range t.scenario.Groups {
		if g.ByHand {
			continue
		}
		if err := t.persist(ctx, convergeWithin, http.MethodPatch, "/api/v1/groups/"+g.Name, map[string]any{"minInstances": g.Final}); err != nil {
			return err
		}
	}
	return nil
}

// unpause changes each paused group, as an operator does after fixing the cause of crashes.
// The new revision ends the pause. It does not check whether the pause is already over,
// because its times are in the enforcer's clock.
func (t *trial) unpause(ctx context.Context, s *history.State) {
	for name, loop := range s.Loops {
		g, ok := s.Groups[name]
		if !ok || g.Revision > loop.GroupRevision {
			continue
		}
		t.log("%s is paused after %d crashes; it gets a new revision", name, loop.Crashes)
		change := map[string]any{"maxPlayers": g.Spec.Players.Max + 1}
		if _, err := t.api.do(ctx, http.MethodPatch, "/api/v1/groups/"+string(name), change); err != nil {
			t.log("not accepted: %v", err)
		}
	}
}

// persist repeats a request until it succeeds.
func (t *trial) persist(ctx context.Context, patience time.Duration, method, path string, body any) error {
	deadline := time.Now().Add(patience)
	for {
		_, err := t.api.do(ctx, method, path, body)
		if err == nil || method == http.MethodPost && strings.Contains(err.Error(), "status 409") {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("not accepted within %v: %w", patience, err)
		}
		pause.For(ctx, 50*time.Millisecond)
	}
}

// settle waits for the declared state, and returns what is missing.
func (t *trial) settle(ctx context.Context, patience time.Duration, wanted func(plan.Group) int) []string {
	deadline := time.Now().Add(patience)
	for {
		left := t.unsettled(ctx, wanted)
		if len(left) == 0 || ctx.Err() != nil || time.Now().After(deadline) {
			return left
		}
		pause.For(ctx, 50*time.Millisecond)
	}
}

func (t *trial) unsettled(ctx context.Context, wanted func(plan.Group) int) []string {
	for _, p := range t.site.Processes() {
		if !p.Running() {
			return []string{p.Name + " does not run"}
		}
	}
	if err := t.catchUp(ctx); err != nil {
		return collect(err)
	}
	events, err := t.history.Events()
	if err != nil {
		return collect(err)
	}
	last, err := history.Last(events)
	if err != nil {
		return collect(err)
	}
	runs, err := record.Read(t.recordDir())
	if err != nil {
		return collect(err)
	}
	spared, err := check.Spared(events)
	if err != nil {
		return collect(err)
	}
	if t.calm {
		t.unpause(ctx, last)
	}
	counts := map[fleet.GroupName]int{}
	for _, g := range t.scenario.Groups {
		counts[fleet.GroupName(g.Name)] = wanted(g)
	}
	return append(check.Settled(last, counts, living(runs)), check.Operated(last, spared)...)
}

// catchUp waits until the recorder has all of etcd's history.
func (t *trial) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rev, err := t.store.Revision(ctx)
	for err == nil && t.history.Rev() < rev {
		if !pause.For(ctx, 2*time.Millisecond) {
			err = fmt.Errorf("the recorder is at revision %d of %d", t.history.Rev(), rev)
		}
	}
	return err
}

// living returns the runs whose process exists.
func living(runs []record.Run) []record.Run {
	var out []record.Run
	for _, r := range runs {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.PID))
		if err == nil && strings.Contains("\x00"+string(env), "\x00ORRERY_INSTANCE_ID="+r.Instance+"\x00") {
			out = append(out, r)
		}
	}
	return out
}

// log prints a line with the time since the start of the run.
func (t *trial) log(format string, args ...any) {
	t.saying.Lock()
	defer t.saying.Unlock()
	fmt.Fprintf(t.out, "%8.3f  %s\n", time.Since(t.start).Seconds(), fmt.Sprintf(format, args...))
}
