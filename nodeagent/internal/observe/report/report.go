// Package report writes the node's resource usage into one record, and its instances' live
// figures and players into parts. It writes what changed meaningfully in one transaction, and
// so rarely that all nodes together stay below a bound; see Interval.
package report

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/usage"
)

const (
	// checkInterval is the interval of checks, and the shortest between two writes.
	checkInterval = time.Second
	// fleetRate bounds the reports per second of all nodes together. An idle fleet then
	// causes less than a hundred writes per second in total.
	fleetRate = 90
	// fleetBytes bounds the bytes per second of all nodes in such transactions, as store.Txn
	// counts them. About half of them stays in etcd's history.
	fleetBytes = 80 << 10
	// maxPause bounds the pause after a large transaction, and so the delay of players.
	maxPause = 30 * time.Second
	// countInterval is the interval at which the nodes are counted.
	countInterval = time.Minute
	// hostInterval is the interval at which the host's usage is measured, which needs system
	// calls.
	hostInterval = 5 * time.Second
	// usageStep is the least change of usage that is worth a write, as a share of the whole.
	usageStep = 0.05
	// cacheStep is the least change of the cache, in bytes.
	cacheStep = 256 << 20
	// staticStep is the least change of a static instance's directory, in bytes.
	staticStep = 1 << 20
	// maxAgeFactor is how old the report and its heartbeats may get without other changes, as a
	// multiple of the fleet's Interval.
	maxAgeFactor = 30
	writeTimeout = 3 * time.Second
)

// Config configures a Reporter. All fields are required.
type Config struct {
	Store    *store.Client
	Node     fleet.NodeID
	DataDir  string
	Capacity fleet.Resources
	Fence    func() (f store.Fence, ok bool)
	Live     func() map[fleet.InstanceID]driver.Live
	// Recall receives the report of the previous agent once, before the first write.
	Recall func(reports.Report)
	// Players are the players on the node's instances, which are written with the report.
	Players *presence.Registry
	// Warm are the cached template versions in order of digest.
	Warm func() []string
	// RunsBegun counts the runs that began. Reported receives the revision of a report that was
	// written after them; see journal.History.
	RunsBegun func() uint64
	Reported  func(rev int64)
	// Now reads the wall clock, with a monotonic reading.
	Now func() time.Time
	// Static are the sizes of the directories of static instances by GROUP/NAME, in bytes.
	Static func() map[string]int64
	// Cached is the size of the template cache in bytes.
	Cached func() int64
	Log    *slog.Logger
}

// Reporter writes the node's report.
type Reporter struct {
	cfg Config
	cpu usage.Processor
	// host is the host's usage at hostAt.
	host    reports.Report
	hostAt  time.Time
	written reports.Report
	// writtenAt is the time of the last attempt; zero before the first.
	writtenAt time.Time
	// recordAt is when the node's record was last written; zero before the first time.
	recordAt time.Time
	epoch    int64
	rev      int64
	read     bool
	// begun is the number of runs that had begun at the last write.
	begun uint64
	// figures are the stored parts of the instances' figures. usageAt is when their resource
	// usage was last written.
	figures [fleet.ReportParts]figures
	usageAt time.Time
	// parts are the revisions of the stored parts of the players; 0 for a missing one.
	parts    [players.PresenceParts]int64
	recalled bool
	// nodes is the size of the fleet at countedAt, and sent the size of the last transaction.
	nodes, sent int
	countedAt   time.Time
	// denied is true after a gateway denied a report, because of an instance that is on another node now.
	// The next one is that of the host alone.
	denied bool
}

// New returns a Reporter. Run starts it.
func New(cfg Config) *Reporter { return &Reporter{cfg: cfg} }

// Interval is the pause of one node after a transaction of sent bytes, for the number of nodes.
// All nodes together stay below fleetRate, and below fleetBytes unless the pause would exceed
// maxPause.
func Interval(nodes, sent int) time.Duration {
	byBytes := time.Duration(nodes) * time.Duration(sent) * time.Second / fleetBytes
	return max(checkInterval, time.Duration(nodes)*time.Second/fleetRate, min(byBytes, maxPause))
}

// heartbeatStep is how old a stored heartbeat and the node's record may get before they are
// written again.
func (r *Reporter) heartbeatStep() time.Duration { return maxAgeFactor * Interval(r.nodes, 0) }

// due reports whether the node's record has reached the age that it announced.
func (r *Reporter) due(at time.Time) bool {
	return at.Sub(r.recordAt) >= time.Duration(r.written.EverySeconds)*time.Second
}

// Run writes reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		at := r.cfg.Now() // with the monotonic reading, which the report lacks
		now := r.collect(at)
		fence, ok := r.cfg.Fence()
		if !ok || (fence.Epoch() == r.epoch && !Differs(r.written, now, r.cfg.Capacity) && !r.figuresChanged(now) && !r.cfg.Players.Changed() && r.cfg.RunsBegun() == r.begun && !r.due(at)) {
			continue
		}
		r.countNodes(ctx, at)
		if at.Sub(r.writtenAt) < Interval(r.nodes, r.sent) {
			continue
		}
		r.writtenAt = at
		if err := r.write(ctx, fence, at, now); err != nil && ctx.Err() == nil {
			r.cfg.Log.Debug("report not written", "error", err)
		}
	}
}

// countNodes counts the nodes of the fleet from time to time. After an error the old count stays.
func (r *Reporter) countNodes(ctx context.Context, now time.Time) {
	if now.Sub(r.countedAt) < countInterval {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nodes, err := store.Count(ctx, r.cfg.Store, keys.NodeSessions())
	if err != nil {
		r.cfg.Log.Debug("nodes not counted", "error", err)
		return
	}
	r.nodes, r.countedAt = nodes, now
}

func (r *Reporter) collect(at time.Time) reports.Report {
	if at.Sub(r.hostAt) >= hostInterval {
		free, total := usage.Disk(r.cfg.DataDir)
		r.host = reports.Report{Node: r.cfg.Node, CPU: r.cpu.Used(), MemoryMiB: usage.Memory(), DiskFreeMiB: free, DiskMiB: total}
		r.hostAt = at
	}
	now := r.host
	now.At, now.Warm, now.CacheBytes, now.StaticBytes = at.UTC(), r.cfg.Warm(), r.cfg.Cached(), r.cfg.Static()
	for id, l := range r.cfg.Live() {
		figures := l.Report
		if !l.Status.State.Running() { // its reports are of a run that has ended
			figures = reports.InstanceReport{Usage: l.Report.Usage.DiskOnly()}
		}
		if figures != (reports.InstanceReport{}) {
			if now.Instances == nil {
				now.Instances = map[fleet.InstanceID]reports.InstanceReport{}
			}
			now.Instances[id] = figures
		}
	}
	return now
}

func (r *Reporter) write(ctx context.Context, fence store.Fence, at time.Time, now reports.Report) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := keys.Report(r.cfg.Node)
	if !r.read {
		if err := r.readAll(ctx, key); err != nil {
			return err
		}
		at = r.cfg.Now()
		now = r.collect(at)
	}
	t, begun := store.Txn{Fences: []store.Fence{fence}}, r.cfg.RunsBegun()
	host := r.rev == 0 || begun != r.begun || fence.Epoch() != r.epoch || Differs(r.written, now, r.cfg.Capacity) || r.due(at)
	if host {
		now.EverySeconds = int(r.heartbeatStep() / time.Second)
		record := now
		record.Instances, record.Parted = nil, true
		t.Writes = append(t.Writes, store.Replace(key, record, r.rev))
	}
	settleFigures, settlePlayers := func(int64) {}, func(int64, error) {}
	if !r.denied {
		settleFigures, settlePlayers = r.addFigures(&t, now), r.addPlayers(&t)
	}
	r.denied = false
	if len(t.Writes) == 0 {
		return nil
	}
	r.sent = t.Bytes()
	rev, err := r.cfg.Store.Commit(ctx, t)
	settlePlayers(rev, err)
	r.denied = errs.Is(err, errs.Denied)
	if err != nil {
		r.read = false
		return errs.Wrap("report.write", err)
	}
	settleFigures(rev)
	if host {
		r.rev, r.written, r.recordAt, r.epoch = rev, now, at, fence.Epoch()
	}
	if begun != r.begun {
		r.cfg.Reported(rev)
		r.begun = begun
	}
	return nil
}

// readAll reads what the store has about the node.
func (r *Reporter) readAll(ctx context.Context, key keys.Key[reports.Report]) error {
	old, err := store.Get(ctx, r.cfg.Store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap("report.readAll", err)
	}
	if err := r.readPlayers(ctx); err != nil {
		return err
	}
	if err := r.readFigures(ctx, !r.recalled); err != nil {
		return err
	}
	if !r.recalled { // an older agent stored the figures in the report itself
		r.cfg.Recall(old)
	}
	r.rev, r.read, r.recalled, r.written = old.ModRev, true, true, reports.Report{}
	return nil
}

// Differs reports whether a newer report is worth a write: a step of usage, other cached
// templates, a step of the cache's size or of static instances' directories.
func Differs(old, now reports.Report, whole fleet.Resources) bool {
	return moved(old.CPU, now.CPU, 1) ||
		moved(float64(old.MemoryMiB), float64(now.MemoryMiB), float64(whole.MemoryMiB)) ||
		moved(float64(old.DiskFreeMiB), float64(now.DiskFreeMiB), float64(now.DiskMiB)) ||
		!slices.Equal(old.Warm, now.Warm) ||
		max(old.CacheBytes-now.CacheBytes, now.CacheBytes-old.CacheBytes) >= cacheStep ||
		staticDiffers(old.StaticBytes, now.StaticBytes)
}

// staticDiffers reports whether a directory of a static instance is new or gone, or its size
// changed by a step.
func staticDiffers(old, now map[string]int64) bool {
	if len(old) != len(now) {
		return true
	}
	for name, bytes := range now {
		was, ok := old[name]
		if d := max(bytes-was, was-bytes); !ok || d >= staticStep && moved(float64(was), float64(bytes), float64(max(was, bytes))) {
			return true
		}
	}
	return false
}

func moved(a, b, whole float64) bool {
	d := b - a
	if d < 0 {
		d = -d
	}
	return d > 0 && d >= usageStep*whole
}
