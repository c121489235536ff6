package nodeagent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/api"
	"github.com/orreryhq/orrery/nodeagent/internal/content/backup"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/datamove"
	"github.com/orreryhq/orrery/nodeagent/internal/content/fileedit"
	"github.com/orreryhq/orrery/nodeagent/internal/content/provider"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/health"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ports"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/turns"
	"github.com/orreryhq/orrery/nodeagent/internal/local"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/node/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/node/membership"
	"github.com/orreryhq/orrery/nodeagent/internal/node/orphan"
	"github.com/orreryhq/orrery/nodeagent/internal/node/relay"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/diskusage"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/recorder"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/report"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/sampler"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/usage"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/rundir"
)

const (
	// headerTimeout bounds how long a caller may take to send a request's head.
	headerTimeout = 10 * time.Second
	// leaveTimeout bounds the shutdown of the listeners and the end of the session.
	leaveTimeout = 2 * time.Second
	// stopSlack is added to the longest stop grace when all instances are stopped.
	stopSlack = 30 * time.Second
	// defaultPath is the search path of instances if the agent has no PATH of its own.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Run runs the agent until ctx ends or an operator ends it over its API. In the second
// case it stops the instances regardless of StopInstancesOnExit and returns
// lifecycle.ErrEnd. Other errors: Conflict if another agent holds the data directory or
// the node id belongs to another data directory; Invalid if the directory or the address
// cannot be used.
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
	if err := rundir.Open(a.cfg.DataDir, a.cfg.RunDir, strings.ReplaceAll(j.Holder(), "/", "-"), j.HolderChanged(), a.cfg.Log); err != nil {
		return err
	}
	tree, err := cgroup.Open(j.UUID())
	if err != nil {
		a.cfg.Log.Info("control groups are unavailable: processes are found by session and environment instead", "cause", err)
	}
	defer tree.Close()
	limiter := cgroup.NewLimiter(j.UUID(), tree)
	defer limiter.Close()
	logLimits(a.cfg.Log, limiter.Offer())
	until, err := deadline.Create(a.deadlinePath())
	if err != nil {
		return err
	}
	defer until.Close()
	parts, err := a.assemble(ctx, j, listener, groups{tree, limiter}, until)
	if err != nil {
		return err
	}
	defer parts.files.Close()
	defer parts.runtimes.close()
	return parts.run(ctx, a, listener)
}

// deadlinePath is the path of the file with the deadline of exclusive instances.
func (a *Agent) deadlinePath() string { return filepath.Join(a.cfg.DataDir, "deadline") }

// parts are the components of a running agent.
type parts struct {
	deadline   *deadline.Keeper
	controller *controller.Controller
	member     *membership.Member
	reporter   *report.Reporter
	static     *diskusage.Survey
	sampler    *sampler.Sampler
	meter      *diskusage.Meter
	orphans    *orphan.Keeper
	crashes    *recorder.Recorder
	moves      *datamove.Mover
	server     *http.Server
	local      *http.Server
	logs       *console.Follower
	files      *fileedit.Editor
	backups    *backup.Keeper
	limiter    *cgroup.Limiter
	runtimes   runtimes
	// relay lets instances use the API; nil for an agent that uses etcd itself.
	relay *relay.Relay
	// engine follows the container engine until its context ends.
	engine func(context.Context)
	// sweep removes sealed secrets of forgotten instances once the placements are listed.
	sweep func(context.Context)
	// hold makes the controller wait until the node has joined.
	hold bool
}

// groups are the host's control groups. tree is nil if the host has none.
type groups struct {
	tree    *cgroup.Tree
	limiter *cgroup.Limiter
}

// assemble creates the parts and connects them.
func (a *Agent) assemble(ctx context.Context, j *journal.Journal, listener net.Listener, control groups, until *deadline.File) (*parts, error) {
	cfg := a.cfg
	cache, err := blobcache.Open(filepath.Join(cfg.DataDir, "blobs"), cfg.Templates, cacheLimit(cfg.CacheMiB, cfg.DataDir))
	if err != nil {
		return nil, err
	}
	entries, damaged, err := j.Load(cfg.Node)
	if err != nil {
		return nil, err
	}
	for _, e := range damaged {
		cfg.Log.Error("a damaged journal entry is ignored", "error", e)
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, errs.WrapAs(errs.Invalid, "nodeagent.assemble", err)
	}
	builder := workspace.New(dir, cache)
	view, blind := a.view()
	builder.Reachable, builder.Log = view.Own, cfg.Log
	tenancy := a.tenancy(blind)
	logTenancy(cfg.Log, tenancy)
	editor, err := fileedit.Open(fileedit.Config{Dir: filepath.Join(dir, "fileversions"), MaxBytes: int64(cfg.FileVersionsMiB) << 20, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	if err := builder.Upgrade(placed(entries)); err != nil {
		cfg.Log.Error("could not restrict the permissions of all instance directories: other users of the host may read them", "error", err)
	}
	runtimes, err := a.runtimes(ctx, process.Config{
		Tree: control.tree, Limiter: control.limiter, View: view, Owner: j.UUID(), BootID: cfg.BootID, Log: cfg.Log,
	}, dir)
	if err != nil {
		return nil, err
	}
	rt := runtimes.byName[fleet.RuntimeProcess]
	warnNoOffer(cfg.Log, a.capacity(), cfg.Room)
	warnPolicy(cfg.Log, cfg.Node, a.policy(), entries)
	warnPortReuse(cfg.Log, ports.Visible())
	p := &parts{files: editor, hold: j.HolderChanged(), meter: diskusage.NewMeter(), logs: console.NewFollower(cfg.Log), limiter: control.limiter, runtimes: runtimes}
	if cfg.Relay != nil {
		if p.relay, err = relay.Open(dir, cfg.Gateways, cfg.Relay, cfg.Log); err != nil {
			return nil, err
		}
	}
	p.deadline = deadline.NewKeeper(deadline.Config{
		File: until, Boot: cfg.BootID, Ending: func(s deadline.Stage) { p.controller.Ending(s) }, Log: cfg.Log,
		TTL: max(time.Second, cmp.Or(cfg.SessionTTL, store.DefaultTTL).Truncate(time.Second)), // as etcd counts it
	})
	history := j.History(rand.Text, cfg.Log)
	p.member = membership.New(membership.Config{
		Store: cfg.Store, Record: a.record(j.UUID(), listener, runtimes.offers, limitsOf(control.limiter.Offer(), dir), tenancy), Holder: j.Holder(), TTL: cfg.SessionTTL, Now: cfg.Now, Log: cfg.Log,
		RecordWritten: func(before, rev int64) { history.RecordWritten(a.deleted(ctx, history, before), rev) }, ReportFound: history.ReportFound, Joining: p.deadline.Joining, Replacing: p.deadline.Replacing,
		InUse: func() map[int]bool { return p.controller.Ports() },
		Joined: func(s *store.Session) {
			p.deadline.Joined(s)
			p.controller.Joined()
			p.crashes.Kick()
			a.markReady()
		},
	})
	p.crashes, err = recorder.New(recorder.Config{Store: cfg.Store, Dir: filepath.Join(dir, "crashes"), Fence: p.member.Fence, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	revealing, err := secrets.New(secrets.Config{
		Read: func(ctx context.Context, name string) (content.Secret, error) {
			return store.Get(ctx, cfg.Store, keys.Secret(name))
		},
		Labels: func(ctx context.Context, g fleet.GroupName) (map[string]string, error) {
			group, err := store.Get(ctx, cfg.Store, keys.Group(g))
			return group.Spec.Labels, err
		},
		Secret: cfg.ClusterSecret, Ring: a.ring, Ask: cfg.AskSecrets, StateDir: filepath.Join(dir, secretsDir), Dir: cfg.SecretsDir, EnvPrefix: cfg.SecretsEnvPrefix, Env: os.LookupEnv, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	remains, err := found(runtimes, dir, cfg.Log)
	if err != nil {
		return nil, err
	}
	players := presence.NewRegistry()
	p.static = diskusage.NewSurvey(p.meter, builder.StaticRoot(), reports.MaxStatic)
	p.controller = controller.New(controller.Config{
		Store: cfg.Store, Node: cfg.Node, Fence: p.member.Fence, CheckSession: p.member.CheckSession, Log: cfg.Log, Found: remains,
		Deps: driver.Deps{
			Runtimes: runtimes.byName, Journal: j, Workspace: builder, Secrets: revealing, Providers: provider.New(cfg.ProvidersDir, cmp.Or(cfg.ProvidersTimeout, provider.Timeout), time.Now, cfg.Log), DataDir: dir, BootID: cfg.BootID, Now: cfg.Now,
			Rebooted: j.Rebooted(), Starts: turns.New(startTurns(cfg.StartParallel, j.Rebooted())), Held: j.HolderChanged(), Host: host(), User: cfg.InstanceUser, Tenants: a.tenants(dir, entries, builder), TenantNumber: a.tenantNumber, Policy: a.policy(), APIURL: func() string { return cfg.APIURL }, RelayURL: p.relayURL(), Node: p.member.Node, Block: p.member.Block, Log: cfg.Log,
			Record: p.crashes.Record, History: history.BeginRun, Logs: p.logs, Players: players, Gateway: a.gateway(p), Disk: p.meter, Deadline: p.deadline, Guards: &guard.Launcher{Command: cfg.Guard, Deadline: filepath.Join(dir, "deadline"), Tree: control.tree.Dir(), Owner: j.UUID()},
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
			return lives || p.controller.Has(id) || j.Holds(id) || builder.Holds(id)
		})
		if err != nil {
			cfg.Log.Warn("could not remove all sealed secrets of forgotten instances", "error", err)
		}
	}
	p.orphans = orphan.New(orphan.Config{
		Store: cfg.Store, Node: p.member.Node, Session: func() bool { _, ok := p.member.Fence(); return ok },
		Instances: p.controller, Runtime: rt, History: history, Found: remains, Root: dir, RunDir: p.controller.RunDir,
		Grace: cfg.OrphanGrace, Log: cfg.Log,
	})
	p.reporter = report.New(report.Config{
		Store: cfg.Store, Node: cfg.Node, DataDir: dir, Capacity: a.capacity(), Fence: p.member.Fence,
		Live: p.controller.Live, Recall: p.controller.Recall, Players: players, Warm: cache.Warm, Cached: cache.Size, Static: p.static.Sizes,
		RunsBegun: history.RunsBegun, Reported: history.Reported, Now: cfg.Now, Log: cfg.Log,
	})
	p.sampler = sampler.New(sampler.Config{
		Live: p.controller.Live, Measured: p.measured, Usage: usage.NewRuns(control.tree.Members).Measure, Used: p.controller.SetUse,
		CPU: new(usage.Processor).Used, Memory: usage.Memory,
	})
	p.moves = datamove.New(datamove.Config{
		Store: cfg.Store, Node: cfg.Node, DataUUID: j.UUID(), DataDir: dir, Workspace: builder, Fence: p.member.Fence,
		Peers: cfg.Peers, Now: cfg.Now, Log: cfg.Log,
	})
	p.backups = backup.Open(backup.Config{
		Dir: a.backups(dir), DataDir: dir, Workspace: builder, Aside: p.moves.SetAside, Now: cfg.Now, Log: cfg.Log,
		Find: func(id fleet.InstanceID) (backup.Place, error) {
			i, err := p.controller.Instance(id)
			if err != nil {
				return backup.Place{}, err
			}
			return api.BackupPlace(i, p.controller, p.moves)
		},
		Ready: a.backupsReady(),
	})
	p.server = &http.Server{ReadHeaderTimeout: headerTimeout, Handler: api.Handler(api.Config{
		Instances: p.controller, Content: cache, Samples: p.sampler, Files: editor, Backups: p.backups, Moves: p.moves, Records: cfg.Records, Node: cfg.Node, End: a.endAsked, Peers: cfg.Peers,
	})}
	p.local = local.Server(local.Config{
		Node: cfg.Node, DataDir: dir, Version: cfg.Version, Instances: p.controller, Contact: p.member.Contact, Log: cfg.Log,
	})
	return p, registerMetrics(cfg.Metrics, p.controller, p.member, p.orphans, editor, p.backups)
}

// backups is the directory of the backups. Nodes may share the configured one, so each has a part of it.
func (a *Agent) backups(dir string) string {
	if a.cfg.BackupDir == "" {
		return filepath.Join(dir, "backups")
	}
	return filepath.Join(a.cfg.BackupDir, string(a.cfg.Node))
}

// backupsReady is closed when the node has joined. Until then the node id may belong to another agent, which may
// use the same configured directory. It is nil for the directory in the data directory.
func (a *Agent) backupsReady() <-chan struct{} {
	if a.cfg.BackupDir == "" {
		return nil
	}
	return a.ready
}

// relayURL is the URL of the API for instances outside of containers; empty without a relay.
func (p *parts) relayURL() string {
	if p.relay == nil {
		return ""
	}
	return p.relay.URL()
}

// placed returns the placements and plans of journal entries.
func placed(entries []journal.Entry) (all []workspace.Request) {
	for _, e := range entries {
		all = append(all, workspace.Request{Placement: e.Machine.Placement, Plan: e.Machine.Plan})
	}
	return all
}

// measured returns the figures that an instance last reported about itself.
func (p *parts) measured(id fleet.InstanceID) (client.Measured, error) {
	i, err := p.controller.Instance(id)
	if err != nil {
		return client.Measured{}, err
	}
	return i.Measured()
}

// gateway checks whether heartbeats of instances could arrive.
func (a *Agent) gateway(p *parts) *health.Gateway {
	return &health.Gateway{
		URL:     func() string { return cmp.Or(p.relayURL(), a.cfg.APIURL) },
		Session: func() bool { _, ok := p.member.Fence(); return ok },
		Revoked: p.member.Revoked,
		// The check sends nothing secret. Instances may know an authority that the agent does not know.
		Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	}
}

// found lists the running instances of this data directory. The process runtime finds all
// processes and identifies those outside containers. The engine identifies the others; if
// it does not answer, the agent continues with the journal alone.
func found(r runtimes, dir string, log *slog.Logger) (map[fleet.InstanceID]runtime.Found, error) {
	living, err := r.byName[fleet.RuntimeProcess].Find(dir)
	if err != nil {
		return nil, err
	}
	if r.docker != nil && r.docker.Missing() == nil {
		contained, err := r.docker.Find(dir)
		if err != nil {
			log.Warn("cannot list the containers: instances in containers are known from the journal only", "cause", err)
		}
		maps.Copy(living, contained)
	}
	all := map[fleet.InstanceID]runtime.Found{}
	for id, f := range living {
		all[fleet.InstanceID(id)] = f
	}
	return all, nil
}

// run runs the parts until ctx ends. It stops the instances before the parts that report
// their ends to the store.
func (p *parts) run(ctx context.Context, a *Agent, listener net.Listener) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	failed := make(chan error, 4)
	p.serveLocally(a, &running)
	running.Go(func() {
		if err := p.member.Run(working); err != nil {
			failed <- err
		}
	})
	running.Go(func() {
		if err := p.deadline.Run(working); err != nil {
			failed <- err
		}
	})
	running.Go(func() { p.drive(working, a) })
	running.Go(func() { p.reporter.Run(working) })
	running.Go(func() { p.static.Run(working) })
	running.Go(func() { p.sampler.Run(working) })
	running.Go(func() { p.meter.WatchAll(working, p.controller.Directories, p.controller.SetDiskUse) })
	running.Go(func() { p.logs.Run(working) })
	running.Go(func() { p.files.Run(working) })
	running.Go(func() { p.limiter.Watch(working) })
	running.Go(func() { p.engine(working) })
	running.Go(func() { p.orphans.Run(working) })
	running.Go(func() { p.crashes.Run(working) })
	running.Go(func() { p.moves.Run(working, a.ready) })
	running.Go(func() { p.backups.Run(working) })
	running.Go(func() { p.sweep(working) })
	if p.relay != nil {
		running.Go(func() {
			if err := p.relay.Run(working); err != nil {
				failed <- err
			}
		})
	}
	running.Go(func() {
		if err := p.server.Serve(a.cfg.Peers.Listener(listener)); !errors.Is(err, http.ErrServerClosed) {
			failed <- errs.WrapAs(errs.Unavailable, "nodeagent.serve", err)
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
	p.logs.Close() // log viewers reconnect to the next agent
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

// serveLocally serves the local API on a unix socket. Without a socket the agent still
// runs its instances.
func (p *parts) serveLocally(a *Agent, running *sync.WaitGroup) {
	listener, err := local.Listen(a.cfg.DataDir)
	if err != nil {
		a.cfg.Log.Error("cannot open the local socket: nodeagent local does not work on this node", "error", err)
		return
	}
	running.Go(func() {
		if err := p.local.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.cfg.Log.Error("the local socket failed: nodeagent local does not work until the agent is restarted", "error", err)
		}
	})
}

// drive runs the controller. If the data directory had another holder, it may be a copy
// and the instances in its journal may run elsewhere. Then the controller starts only after
// the node has joined, which proves that the node id belongs to this directory.
func (p *parts) drive(ctx context.Context, a *Agent) {
	if p.held(a) {
		a.cfg.Log.Info("the host was restarted or the data directory is a copy: waiting until the node has joined")
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

// stopAll stops the instances and waits for at most the longest of their graces plus stopSlack.
func (p *parts) stopAll(a *Agent) error {
	longest := p.controller.LongestStop()
	if longest > 0 {
		a.cfg.Log.Info("stopping the instances", "atMost", longest)
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest+stopSlack)
	defer cancel()
	err := p.controller.StopAll(ctx)
	if err != nil {
		a.cfg.Log.Error("could not stop all instances and report their ends", "error", err)
	}
	return err
}

// endAsked starts the shutdown that an operator requested over the API.
func (a *Agent) endAsked(reason string) {
	a.cfg.Log.Info("an operator asked the agent to end", "reason", reason)
	a.end()
}

// deletedTimeout bounds the read that tells whether the node was deleted.
const deletedTimeout = 3 * time.Second

// deleted returns the revision of the node's record before the one just written. If there
// was none because an operator deleted the node, it is the revision of the deleted record.
func (a *Agent) deleted(ctx context.Context, history *journal.History, before int64) int64 {
	if before != 0 {
		return before
	}
	ctx, cancel := context.WithTimeout(ctx, deletedTimeout)
	defer cancel()
	gone, err := store.Get(ctx, a.cfg.Store, keys.DeletedNode(a.cfg.Node))
	if err != nil || !history.RecordDeleted(gone.Record) {
		return 0
	}
	a.cfg.Log.Warn("an operator deleted this node: instances without a record are stopped after the grace period", "by", gone.By, "grace", a.cfg.OrphanGrace)
	return gone.Record
}

func (a *Agent) markReady() {
	select {
	case <-a.ready:
	default:
		close(a.ready)
	}
}

// record is the node's record as the agent writes it.
func (a *Agent) record(uuid string, listener net.Listener, runtimes []fleet.NodeRuntime, limits fleet.NodeLimits, tenancy isolation.Tenants) fleet.Node {
	admits := a.policy()
	n := fleet.Node{
		ID: a.cfg.Node, DataUUID: uuid, Address: a.cfg.Address, AgentURL: a.cfg.AdvertiseURL, Version: a.cfg.Version,
		Runtimes: runtimes, Limits: limits, Tenants: &tenancy, Policy: &admits,
		Labels: a.cfg.Labels, Variables: a.cfg.Variables, Capacity: a.capacity(), Room: a.cfg.Room, Host: usage.Host(),
		SealKeys: a.ring.KeyIDs(),
	}
	if a.cfg.AskSecrets != nil {
		n.SealKeys = []string{cluster.AsksForSecrets}
	}
	if n.AgentURL == "" {
		n.AgentURL = a.cfg.Peers.URLOf(listener.Addr())
	}
	return n
}

// host holds the values of the agent's environment that instances inherit.
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

const (
	// stagedFor is how long after a reboot of the host the default limit of starts holds.
	stagedFor = 10 * time.Minute
	// settleTime is how long the instances of a rebooted host gather before the first of them start.
	settleTime = time.Second
	// minStaged is the default limit on a host with few processors.
	minStaged = 2
)

// startTurns returns how many instances start at the same time. limit is the setting; 0 means all, and one
// for each processor after a reboot of the host.
func startTurns(limit int, rebooted bool) turns.Config {
	switch {
	case limit == 0 && rebooted:
		return turns.Config{Limit: max(minStaged, goruntime.NumCPU()), Settle: settleTime, For: stagedFor}
	case rebooted:
		return turns.Config{Limit: limit, Settle: settleTime}
	}
	return turns.Config{Limit: limit}
}
