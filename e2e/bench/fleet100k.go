package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// The large fleet. Each instance has one player on average.
	largeNodes, largeGroups, largeInstances = 2000, 100, 100_000
	// largeSettle is the time before the measurement of the history, largeWindow its length.
	largeSettle, largeWindow = 40 * time.Second, 2 * time.Minute
	// largeStarts is how often a gateway is started, largeWalks how often all pages are read.
	largeStarts, largeWalks = 4, 3
	// The bars: MiB, s, ms, MiB per hour.
	largeMemory, largeColdStart, largePage, largeHistory = 700, 5, 50, 1000
)

// The pace of agents, as in nodeagent/internal/observe/report.
const (
	agentsPerSecond = 90
	agentsBytes     = 80 << 10
	agentsPause     = 30 * time.Second
)

// measureLargeFleet measures one gateway with a hundred thousand instances on two thousand nodes while
// their players move: its memory, its start, and pages of a thousand instances. It also measures the
// growth of etcd's history. Agents and instances are simulated; the agents report at the pace of real
// ones.
func measureLargeFleet(ctx context.Context, b *bench) error {
	etcd, err := b.startEtcd("fleet-etcd", func(cfg *embed.Config) {
		cfg.MaxTxnOps, cfg.QuotaBackendBytes = placeMaxOps, 8<<30
	})
	if err != nil {
		return err
	}
	defer etcd.Close()
	endpoint := "http://" + etcd.Clients[0].Addr().String()
	client, err := store.Dial([]string{endpoint}, store.Options{MaxOps: placeMaxOps})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Join(ctx, time.Now()); err != nil {
		return err
	}
	f := &largeFleet{store: client, nodes: largeNodes / b.fleetShare, instances: largeInstances / b.fleetShare, random: rand.New(rand.NewPCG(7, 8))}
	progress("seeding %d instances on %d nodes", f.instances, f.nodes)
	if err := f.seed(ctx); err != nil {
		return err
	}
	all, err := b.newGateways(ctx, "fleet", endpoint)
	if err != nil {
		return err
	}
	playing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	count := &historyBytes{}
	running.Go(func() { _ = client.Follow(playing, keys.Root, count) })
	running.Go(func() { f.play(playing) })
	progress("starting gateways")
	if err := all.measureColdStart(ctx, b, largeStarts, "fleet100k_cold_start_s", largeColdStart); err != nil {
		return err
	}
	return f.measure(ctx, b, all, count)
}

// measure measures a gateway and the history while players move.
func (f *largeFleet) measure(ctx context.Context, b *bench, all *gateways, count *historyBytes) error {
	one, err := all.start(ctx, "measured")
	if err != nil {
		return err
	}
	defer one.Kill()
	token, err := all.login(ctx, one)
	if err != nil {
		return err
	}
	if !pause.For(ctx, largeSettle) {
		return ctx.Err()
	}
	count.take()
	began := time.Now()
	web := &http.Client{}
	defer web.CloseIdleConnections()
	var took []time.Duration
	for range largeWalks {
		for page := 1; page <= (f.instances+apiPage-1)/apiPage; page++ {
			at := time.Now()
			if _, err := get(ctx, web, fmt.Sprintf("%s/api/v1/services?pageSize=%d&page=%d", one.url, apiPage, page), token); err != nil {
				return err
			}
			took = append(took, time.Since(at))
		}
	}
	if !pause.For(ctx, largeWindow-time.Since(began)) {
		return ctx.Err()
	}
	grown, window := count.take(), time.Since(began)
	memory, err := memoryMiB(one.PID(), "VmHWM:")
	if err != nil {
		return err
	}
	if err := f.failure(); err != nil {
		return err
	}
	b.report("fleet100k_gateway_mib", memory, "MiB", largeMemory)
	b.report("fleet100k_page_p99_ms", quantile(took, 0.99), "ms", largePage)
	b.report("fleet100k_history_mib_per_h", float64(grown)/(1<<20)*float64(time.Hour)/float64(window), "MiB/h", largeHistory)
	return nil
}

// historyBytes counts the bytes of changes in etcd's history.
type historyBytes struct {
	mu sync.Mutex
	n  int
}

// Reset receives the initial list, which is not a change.
func (h *historyBytes) Reset([]store.KeyValue, int64) {}

// Apply counts changes.
func (h *historyBytes) Apply(changes []store.Change, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changes {
		h.n += len(c.Key) + len(c.Value) + perRevision
	}
}

func (h *historyBytes) take() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.n
	h.n = 0
	return n
}

// largeFleet is a fleet of simulated agents and instances.
type largeFleet struct {
	store            *store.Client
	nodes, instances int
	random           *rand.Rand
	agents           []*reporter
	on               []int // the agent of each instance
	ids              []fleet.InstanceID
	where            []int // the instance of each player

	mu     sync.Mutex
	failed error
}

func (f *largeFleet) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// seed writes the records of the fleet.
func (f *largeFleet) seed(ctx context.Context) error {
	now := time.Now().UTC()
	var writes []store.Write
	for n := range f.nodes {
		id := placeNode(n)
		f.agents = append(f.agents, &reporter{
			node: id, players: map[fleet.InstanceID]map[players.PlayerID]bool{}, changedFigures: map[int]bool{}, changedPresences: map[int]bool{}, due: time.Now().Add(time.Duration(f.random.Int64N(int64(agentsPause)))),
		})
		writes = append(writes,
			store.Create(keys.Node(id), fleet.Node{
				ID: id, DataUUID: "d-" + string(id), Address: "10.0.0.1", AgentURL: "http://127.0.0.1:1", Version: "bench",
				Capacity: fleet.Resources{MemoryMiB: 1_000_000, CPU: 1_000_000}, JoinedAt: now,
				Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
			}),
			store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id, DataUUID: "d-" + string(id), StartedAt: now}),
			store.Create(keys.Report(id), reports.Report{Node: id, CPU: 0.5, MemoryMiB: 1000, DiskFreeMiB: 1000, DiskMiB: 2000, Parted: true, At: now, EverySeconds: 600}))
	}
	sp := spawn.New(view.New(f.store, nil).Snapshot(), now, rand.New(rand.NewPCG(1, 2)))
	share := f.instances / largeGroups
	for g := range largeGroups {
		group := fleet.Group{Name: fleet.GroupName(fmt.Sprintf("group-%02d", g)), Revision: 1, CreatedAt: now, UpdatedAt: now, Spec: fleet.DefaultSpec()}
		group.Spec.Scaling.Min, group.Spec.Scaling.Max = share, share
		group.Spec.Command, group.Spec.Resources.MemoryMiB = "exec ./server", 16
		writes = append(writes, store.Create(keys.Group(group.Name), group))
		var births []spawn.Birth
		for range share {
			births = append(births, sp.Fresh(&group, spawn.Cause{Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum}, "", nil))
		}
		for _, txn := range sp.Txns(births, nil, nil, f.store.MaxOps()) {
			if _, err := f.store.Commit(ctx, txn); err != nil {
				return err
			}
		}
		for _, born := range births {
			n := len(f.ids) % f.nodes
			f.ids, f.on = append(f.ids, born.Intent.ID), append(f.on, n)
			f.agents[n].players[born.Intent.ID] = map[players.PlayerID]bool{}
			writes = append(writes, records(born.Intent, fleet.NodeSession{Node: placeNode(n)}, 20_000+len(f.ids)%40_000).Writes...)
		}
	}
	if err := commitAll(ctx, f.store, writes); err != nil {
		return err
	}
	for n := range f.instances {
		f.where = append(f.where, -1)
		f.move(n)
	}
	for _, a := range f.agents {
		for part := range fleet.ReportParts {
			a.changedFigures[part] = true
		}
		if err := a.write(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// move moves a player to another instance.
func (f *largeFleet) move(player int) {
	id := restPlayer(player)
	if from := f.where[player]; from >= 0 {
		f.agents[f.on[from]].change(f.ids[from], id, false)
	}
	to := f.random.IntN(len(f.ids))
	f.where[player] = to
	f.agents[f.on[to]].change(f.ids[to], id, true)
}

// play moves players and reports them until ctx ends.
func (f *largeFleet) play(ctx context.Context) {
	const tick = 100 * time.Millisecond
	last, owed := time.Now(), 0.0
	for pause.For(ctx, tick) {
		now := time.Now()
		owed += float64(len(f.where)) * float64(now.Sub(last)) / float64(playerStays)
		last = now
		for ; owed >= 1; owed-- {
			f.move(f.random.IntN(len(f.where)))
		}
		for _, a := range f.agents {
			if now.Before(a.due) {
				continue
			}
			if err := a.write(ctx, f); err != nil && ctx.Err() == nil {
				f.mu.Lock()
				f.failed = err
				f.mu.Unlock()
				return
			}
		}
	}
}

// reporter reports the players on a simulated node.
type reporter struct {
	node    fleet.NodeID
	players map[fleet.InstanceID]map[players.PlayerID]bool
	// figures and presence are the revisions of the stored parts, changed the parts to write.
	figures                          [fleet.ReportParts]int64
	presence                         [players.PresenceParts]int64
	changedFigures, changedPresences map[int]bool
	due                              time.Time
}

func (r *reporter) change(i fleet.InstanceID, p players.PlayerID, joined bool) {
	if joined {
		r.players[i][p] = true
	} else {
		delete(r.players[i], p)
	}
	r.changedFigures[i.Part()], r.changedPresences[p.Part()] = true, true
}

// write writes the changed parts, and sets when the next write is due.
func (r *reporter) write(ctx context.Context, f *largeFleet) error {
	now := time.Now().UTC()
	figures := map[int]map[fleet.InstanceID]reports.InstanceReport{}
	online := map[int][]players.Presence{}
	for id, on := range r.players {
		if part := id.Part(); r.changedFigures[part] {
			if figures[part] == nil {
				figures[part] = map[fleet.InstanceID]reports.InstanceReport{}
			}
			figures[part][id] = reports.InstanceReport{
				Players: len(on), MaxPlayers: 20, PlayersKnown: true, TPS: 20, HeartbeatAt: now,
				Usage: reports.Usage{MemoryBytes: 1 << 30, CPU: 12.5, CPUKnown: true, DiskBytes: 1 << 28, DiskKnown: true},
			}
		}
		for p := range on {
			if part := p.Part(); r.changedPresences[part] {
				online[part] = append(online[part], players.Presence{Player: p, Name: "Player" + string(p[:6]), By: id, Since: now, At: now})
			}
		}
	}
	var t store.Txn
	var wroteFigures, wrotePresences []int
	for _, part := range slices.Sorted(maps.Keys(figures)) {
		wroteFigures = append(wroteFigures, part)
		t.Writes = append(t.Writes, store.Replace(keys.ReportPart(r.node, part), reports.ReportPart{At: now, Instances: figures[part]}, r.figures[part]))
	}
	for _, part := range slices.Sorted(maps.Keys(r.changedPresences)) {
		key := keys.Players(r.node, part)
		switch there := online[part]; {
		case len(there) > 0:
			slices.SortFunc(there, func(a, b players.Presence) int {
				return cmp.Or(cmp.Compare(a.Player, b.Player), cmp.Compare(a.By, b.By))
			})
			t.Writes = append(t.Writes, store.Replace(key, players.PresencePart{Part: part, Players: there}, r.presence[part]))
		case r.presence[part] != 0:
			t.Writes = append(t.Writes, store.Remove(key, r.presence[part]))
		default:
			continue
		}
		wrotePresences = append(wrotePresences, part)
	}
	clear(r.changedFigures)
	clear(r.changedPresences)
	if len(t.Writes) == 0 {
		return nil
	}
	rev, err := f.store.Commit(ctx, t)
	if err != nil {
		return err
	}
	for _, part := range wroteFigures {
		r.figures[part] = rev
	}
	for _, part := range wrotePresences {
		if r.presence[part] = rev; len(online[part]) == 0 {
			r.presence[part] = 0
		}
	}
	byBytes := time.Duration(f.nodes) * time.Duration(t.Bytes()) * time.Second / agentsBytes
	if next := time.Now().Add(max(time.Second, time.Duration(f.nodes)*time.Second/agentsPerSecond, min(byBytes, agentsPause))); r.due.Before(time.Now()) {
		r.due = next
	}
	return nil
}
