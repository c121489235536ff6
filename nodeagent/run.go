package nodeagent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/internal/api"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
	"github.com/orreryhq/orrery/nodeagent/internal/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/disk"
	"github.com/orreryhq/orrery/nodeagent/internal/gauge"
	"github.com/orreryhq/orrery/nodeagent/internal/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/health"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/local"
	"github.com/orreryhq/orrery/nodeagent/internal/membership"
	"github.com/orreryhq/orrery/nodeagent/internal/orphan"
	"github.com/orreryhq/orrery/nodeagent/internal/ports"
	"github.com/orreryhq/orrery/nodeagent/internal/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/provide"
	"github.com/orreryhq/orrery/nodeagent/internal/recorder"
	"github.com/orreryhq/orrery/nodeagent/internal/report"
	"github.com/orreryhq/orrery/nodeagent/internal/rundir"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/supervise"
	"github.com/orreryhq/orrery/nodeagent/internal/usage"
	"github.com/orreryhq/orrery/nodeagent/internal/workspace"
)

const (
	// headerTimeout bounds how long a caller may take to send a request's head.
	headerTimeout = 10 * time.Second
	// leaveTimeout bounds the last words: the listener's end and the session's.
	leaveTimeout = 2 * time.Second
	// stopSlack is added to the longest stop sequence when all instances are stopped.
	stopSlack = 30 * time.Second
	// defaultPath is the search path of instances when the agent has none.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Run runs the agent until ctx ends, or until an operator asked for its end over its API: then
// it stops the instances, whatever the configuration says, and returns lifecycle.ErrEnd. Errors: Conflict when another agent holds the
// data directory, or when the node id belongs to another one; Invalid when
// directory or address cannot be used.
func (a *Agent) Run(ctx context.Context) error {
	j, err := journal.Open(a.cfg.DataDir, a.cfg.BootID, rand.Text)
	if err != nil {
		return err
	}
	defer j.Close()
	listener, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return &errs.Error{
			Op: "nodeagent.Run", Kind: errs.Invalid, Field: "listen", Err: err,
			Message: fmt.Sprintf("cannot listen on %s: choose another address", a.cfg.Listen),
		}
	}
	defer listener.Close()
	if err := rundir.Open(a.cfg.DataDir, a.cfg.RunDir, strings.ReplaceAll(j.Holder(), "/", "-"), j.Moved(), a.cfg.Log); err != nil {
		return err
	}
	tree, err := cgroup.Open(j.UUID())
	if err != nil {
		a.cfg.Log.Info("no control groups: processes are told by session and environment instead", "cause", err)
	}
	defer tree.Close()
	limiter := cgroup.NewLimiter(j.UUID(), tree)
	defer limiter.Close()
	tellLimits(a.cfg.Log, limiter.Offer())
	until, err := deadline.Create(a.deadlinePath())
	if err != nil {
		return err
	}
	defer until.Close()
	parts, err := a.assemble(ctx, j, listener, groups{tree, limiter}, until)
	if err != nil {
		return err
	}
	defer parts.runtimes.close()
	return parts.run(ctx, a, listener)
}

// deadlinePath is the file that says until when exclusive instances may run.
func (a *Agent) deadlinePath() string { return filepath.Join(a.cfg.DataDir, "deadline") }

// parts are what a running agent is made of.
type parts struct {
	tenure     *deadline.Keeper
	controller *controller.Controller
	member     *membership.Member
	reporter   *report.Reporter
	static     *disk.Survey
	gauge      *gauge.Gauge
	meter      *disk.Meter
	orphans    *orphan.Keeper
	crashes    *recorder.Recorder
	server     *http.Server
	local      *http.Server
	logs       *console.Follower
	limiter    *cgroup.Limiter
	runtimes   runtimes
	// engine follows the container engine until its context ends.
	engine func(context.Context)
	// sweep removes sealed values of forgotten instances, once these are known.
	sweep func(context.Context)
	// hold keeps the controller from acting before the node has joined.
	hold bool
}

// groups are the host's control groups, as far as there are any.
type groups struct {
	tree    *cgroup.Tree
	limiter *cgroup.Limiter
}

// assemble wires the parts by hand.
func (a *Agent) assemble(ctx context.Context, j *journal.Journal, listener net.Listener, control groups, until *deadline.File) (*parts, error) {
	cfg := a.cfg
	cache, err := blobs.Open(filepath.Join(cfg.DataDir, "blobs"), cfg.Templates, cacheLimit(cfg.CacheMiB, cfg.DataDir))
	if err != nil {
		return nil, err
	}
	entries, damaged, err := j.Load(cfg.Node)
	if err != nil {
		return nil, err
	}
	for _, e := range damaged {
		cfg.Log.Error("a journal entry is not used", "error", e)
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, errs.As(errs.Invalid, "nodeagent.assemble", err)
	}
	builder := workspace.New(dir, cache)
	if err := builder.Upgrade(placed(entries)); err != nil {
		cfg.Log.Error("some directories of instances stay as an earlier agent made them: other users of the host may read them", "error", err)
	}
	runtimes, err := a.runtimes(ctx, process.Config{
		Tree: control.tree, Limiter: control.limiter, Confine: cfg.Confine, Owner: j.UUID(), BootID: cfg.BootID, Log: cfg.Log,
	}, dir)
	if err != nil {
		return nil, err
	}
	rt := runtimes.byName[fleet.RuntimeProcess]
	tellOffer(cfg.Log, a.capacity(), cfg.Room)
	tellPorts(cfg.Log, ports.Visible())
	p := &parts{hold: j.Moved(), meter: disk.NewMeter(), logs: console.NewFollower(cfg.Log), limiter: control.limiter, runtimes: runtimes}
	p.tenure = deadline.NewKeeper(deadline.Config{
		File: until, Boot: cfg.BootID, Ending: func(s deadline.Stage) { p.controller.Ending(s) }, Log: cfg.Log,
		TTL: max(time.Second, cmp.Or(cfg.SessionTTL, store.DefaultTTL).Truncate(time.Second)), // as etcd counts it
	})
	past := j.Past(rand.Text, cfg.Log)
	p.member = membership.New(membership.Config{
		Store: cfg.Store, Record: a.record(j.UUID(), listener, runtimes.offers, limitsOf(control.limiter.Offer(), dir)), Holder: j.Holder(), TTL: cfg.SessionTTL, Now: cfg.Now, Log: cfg.Log,
		Wrote: func(before, rev int64) { past.Wrote(a.deleted(ctx, past, before), rev) }, Found: past.Found, Joining: p.tenure.Joining, Replacing: p.tenure.Replacing,
		InUse: func() map[int]bool { return p.controller.Ports() },
		Joined: func(s *store.Session) {
			p.tenure.Joined(s)
			p.controller.Joined(s.Fence())
			p.crashes.Kick()
			a.markReady()
		},
	})
	p.crashes, err = recorder.New(recorder.Config{Store: cfg.Store, Dir: filepath.Join(dir, "crashes"), Fence: p.member.Fence, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	revealing, err := secrets.New(secrets.Config{
		Read: func(ctx context.Context, name string) (fleet.Secret, error) {
			return store.Get(ctx, cfg.Store, store.SecretKey(name))
		},
		Secret: cfg.ClusterSecret, Keep: filepath.Join(dir, "secrets"), Dir: cfg.SecretsDir, EnvPrefix: cfg.SecretsEnvPrefix, Env: os.LookupEnv, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	remains, err := found(runtimes, dir, cfg.Log)
	if err != nil {
		return nil, err
	}
	players := presence.NewBoard()
	p.static = disk.NewSurvey(p.meter, builder.StaticRoot(), fleet.MaxStatic)
	p.controller = controller.New(controller.Config{
		Store: cfg.Store, Node: cfg.Node, Fence: p.member.Fence, Doubt: p.member.Doubt, Log: cfg.Log, Found: remains,
		Kit: supervise.Kit{
			Runtimes: runtimes.byName, Journal: j, Workspace: builder, Secrets: revealing, Providers: provide.New(cfg.ProvidersDir, cmp.Or(cfg.ProvidersTimeout, provide.Timeout), time.Now, cfg.Log), DataDir: dir, BootID: cfg.BootID, Now: cfg.Now,
			Rebooted: j.Rebooted(), Held: j.Moved(), Host: host(), User: cfg.InstanceUser, APIURL: func() string { return cfg.APIURL }, Node: p.member.Node, Block: p.member.Block, Log: cfg.Log,
			Record: p.crashes.Take, Past: past.Begin, Logs: p.logs, Players: players, Door: a.door(p.member), Disk: p.meter, Tenure: p.tenure, Guards: &guard.Post{Command: cfg.Guard, Deadline: filepath.Join(dir, "deadline"), Tree: control.tree.Dir(), Owner: j.UUID()},
		},
	}, entries)
	p.engine = func(ctx context.Context) {
		if runtimes.docker != nil {
			runtimes.docker.Run(ctx, runtimes.following(dir, p.controller, p.member, cfg.Log))
		}
	}
	p.sweep = func(ctx context.Context) {
		select {
		case <-p.controller.Listed():
		case <-ctx.Done():
			return
		}
		err := revealing.Sweep(func(id fleet.InstanceID) bool {
			_, lives := remains[id]
			return lives || p.controller.Driven(id) || j.Holds(id) || builder.Holds(id)
		})
		if err != nil {
			cfg.Log.Warn("sealed secrets of forgotten instances are not all removed", "error", err)
		}
	}
	p.orphans = orphan.New(orphan.Config{
		Store: cfg.Store, Node: p.member.Node, Session: func() bool { _, ok := p.member.Fence(); return ok },
		Instances: p.controller, Runtime: rt, Past: past, Found: remains, Root: dir, RunDir: p.controller.RunDir,
		Grace: cfg.OrphanGrace, Log: cfg.Log,
	})
	p.reporter = report.New(report.Config{
		Store: cfg.Store, Node: cfg.Node, DataDir: dir, Capacity: a.capacity(), Fence: p.member.Fence,
		Live: p.controller.Live, Recall: p.controller.Recall, Players: players, Warm: cache.Warm, Cached: cache.Size, Static: p.static.Sizes,
		Begun: past.Begun, Reported: past.Reported, Now: cfg.Now, Log: cfg.Log,
	})
	p.gauge = gauge.New(gauge.Config{
		Live: p.controller.Live, Measured: p.measured, Usage: usage.NewRuns(control.tree.Members).Measure, Used: p.controller.SetUse,
		CPU: new(usage.Processor).Used, Memory: usage.Memory,
	})
	p.server = &http.Server{ReadHeaderTimeout: headerTimeout, Handler: api.Handler(api.Config{
		Instances: p.controller, Content: cache, Past: p.gauge, Records: cfg.Records, Node: cfg.Node, End: a.endAsked, Secret: cfg.ClusterSecret,
	})}
	p.local = local.Server(local.Config{
		Node: cfg.Node, DataDir: dir, Version: cfg.Version, Instances: p.controller, Contact: p.member.Contact, Log: cfg.Log,
	})
	return p, registerMetrics(cfg.Metrics, p.controller, p.member, p.orphans)
}

// placed are the instances of journal entries.
func placed(entries []journal.Entry) (all []workspace.Request) {
	for _, e := range entries {
		all = append(all, workspace.Request{Placement: e.Machine.Placement, Plan: e.Machine.Plan})
	}
	return all
}

// measured is what an instance last measured of itself.
func (p *parts) measured(id fleet.InstanceID) (supervise.Measured, error) {
	i, err := p.controller.Instance(id)
	if err != nil {
		return supervise.Measured{}, err
	}
	return i.Measured()
}

// door is the way of what instances say of themselves.
func (a *Agent) door(m *membership.Member) *health.Door {
	return &health.Door{
		URL:     func() string { return a.cfg.APIURL },
		Session: func() bool { _, ok := m.Fence(); return ok },
		Barred:  m.Barred,
		Client:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// found is what lives of this data directory's instances before anything is done. The
// plain runtime finds all of it, and who the runs are but for those in containers: that
// the engine knows, and one that does not answer keeps the agent from nothing else.
func found(r runtimes, dir string, log *slog.Logger) (map[fleet.InstanceID]runtime.Found, error) {
	living, err := r.byName[fleet.RuntimeProcess].Find(dir)
	if err != nil {
		return nil, err
	}
	if r.docker != nil && r.docker.Missing() == nil {
		contained, err := r.docker.Find(dir)
		if err != nil {
			log.Warn("what runs in containers is known by the journal only", "cause", err)
		}
		maps.Copy(living, contained)
	}
	all := map[fleet.InstanceID]runtime.Found{}
	for id, f := range living {
		all[fleet.InstanceID(id)] = f
	}
	return all, nil
}

// run keeps the parts going until ctx ends, and ends them in the right order:
// instances while the store can still be told, then what told it.
func (p *parts) run(ctx context.Context, a *Agent, listener net.Listener) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	failed := make(chan error, 3)
	p.serveLocally(a, &running)
	running.Go(func() {
		if err := p.member.Run(working); err != nil {
			failed <- err
		}
	})
	running.Go(func() {
		if err := p.tenure.Run(working); err != nil {
			failed <- err
		}
	})
	running.Go(func() { p.drive(working, a) })
	running.Go(func() { p.reporter.Run(working) })
	running.Go(func() { p.static.Run(working) })
	running.Go(func() { p.gauge.Run(working) })
	running.Go(func() { p.meter.WatchAll(working, p.controller.Directories, p.controller.SetDiskUse) })
	running.Go(func() { p.logs.Run(working) })
	running.Go(func() { p.limiter.Watch(working) })
	running.Go(func() { p.engine(working) })
	running.Go(func() { p.orphans.Run(working) })
	running.Go(func() { p.crashes.Run(working) })
	running.Go(func() { p.sweep(working) })
	running.Go(func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- errs.As(errs.Unavailable, "nodeagent.serve", err)
		}
	})

	var err error
	stopped := false
	select {
	case err = <-failed:
	case <-a.ending:
		err = lifecycle.ErrEnd
		stopped = !p.held(a) && p.stopAll(a) == nil
	case <-ctx.Done():
		if a.cfg.StopInstancesOnExit && !a.keep.Load() && !p.held(a) {
			stopped = p.stopAll(a) == nil
		}
	}
	p.logs.Close() // viewers come back to the next agent
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	for _, server := range []*http.Server{p.server, p.local} {
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	}
	stop()
	running.Wait()
	p.member.Leave(last, stopped)
	return err
}

// serveLocally serves the break-glass socket. A host that takes none runs its
// instances all the same.
func (p *parts) serveLocally(a *Agent, running *sync.WaitGroup) {
	listener, err := local.Listen(a.cfg.DataDir)
	if err != nil {
		a.cfg.Log.Error("no local socket: without the control plane this node cannot be operated", "error", err)
		return
	}
	running.Go(func() {
		if err := p.local.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.cfg.Log.Error("the local socket is no longer served", "error", err)
		}
	})
}

// drive runs the controller. A directory that had another holder may be a copy:
// what its journal says to run here may run elsewhere, so the store is asked first
// whether the node is this one.
func (p *parts) drive(ctx context.Context, a *Agent) {
	if p.held(a) {
		a.cfg.Log.Info("the host was restarted or the data directory is a copy: nothing is done before the node has joined")
		select {
		case <-a.ready:
		case <-ctx.Done():
			return
		}
	}
	p.controller.Run(ctx)
}

// held reports whether the controller waits for the node to join.
func (p *parts) held(a *Agent) bool {
	select {
	case <-a.ready:
		return false
	default:
		return p.hold
	}
}

// stopAll stops the instances, for as long as their own graces allow.
func (p *parts) stopAll(a *Agent) error {
	longest := p.controller.LongestStop()
	if longest > 0 {
		a.cfg.Log.Info("stopping the instances", "atMost", longest)
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest+stopSlack)
	defer cancel()
	err := p.controller.StopAll(ctx)
	if err != nil {
		a.cfg.Log.Error("not all instances were stopped and reported", "error", err)
	}
	return err
}

// endAsked begins the end that an operator asked for.
func (a *Agent) endAsked(reason string) {
	a.cfg.Log.Info("an operator asked for the agent's end", "reason", reason)
	a.end()
}

// deletedTimeout bounds the question whether the node was deleted.
const deletedTimeout = 3 * time.Second

// deleted is the revision of the node's record before the one that was just written. When
// there was none, because an operator deleted the node, it is that of the deleted record.
func (a *Agent) deleted(ctx context.Context, past *journal.Past, before int64) int64 {
	if before != 0 {
		return before
	}
	ctx, cancel := context.WithTimeout(ctx, deletedTimeout)
	defer cancel()
	gone, err := store.Get(ctx, a.cfg.Store, store.DeletedNodeKey(a.cfg.Node))
	if err != nil || !past.Deleted(gone.Record) {
		return 0
	}
	a.cfg.Log.Warn("an operator deleted this node: what runs here without a record is stopped once its grace has passed", "by", gone.By, "grace", a.cfg.OrphanGrace)
	return gone.Record
}

func (a *Agent) markReady() {
	select {
	case <-a.ready:
	default:
		close(a.ready)
	}
}

// record is the node as it presents itself.
func (a *Agent) record(uuid string, listener net.Listener, runtimes []fleet.NodeRuntime, limits fleet.NodeLimits) fleet.Node {
	n := fleet.Node{
		ID: a.cfg.Node, DataUUID: uuid, Address: a.cfg.Address, AgentURL: a.cfg.AdvertiseURL, Version: a.cfg.Version,
		Runtimes: runtimes, Limits: limits,
		Labels: a.cfg.Labels, Variables: a.cfg.Variables, Capacity: a.capacity(), Room: a.cfg.Room, Host: usage.Host(),
	}
	if n.AgentURL == "" {
		n.AgentURL = wire.URLOf(listener.Addr())
	}
	return n
}

// host is what environments of instances take over.
func host() workspace.Host {
	h := workspace.Host{Path: os.Getenv("PATH"), User: "nobody"}
	if strings.TrimSpace(h.Path) == "" {
		h.Path = defaultPath
	}
	if u, err := user.Current(); err == nil {
		h.User = u.Username
	}
	return h
}
