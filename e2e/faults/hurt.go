package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/pause"
)

// hurt applies the faults at their times, undoes them, and finally heals everything.
func (t *trial) hurt(ctx context.Context) {
	start := time.Now()
	var wg sync.WaitGroup
	for _, f := range t.scenario.Faults {
		wg.Go(func() {
			pause.For(ctx, time.Until(start.Add(f.At)))
			over := t.began(f)
			defer over()
			undo := t.strike(ctx, f)
			if undo == nil {
				return
			}
			if f.Kind == plan.Drain && f.For == 0 {
				return // see endDrains
			}
			pause.For(ctx, f.For)
			undo()
			t.log("over: %v", f)
		})
	}
	wg.Wait()
	t.heal()
}

// heal undoes all faults.
func (t *trial) heal() {
	for _, p := range t.site.AllLinks() {
		t.site.Link(p).Set(proxy.Fault{})
	}
	for _, p := range t.site.Processes() {
		p.Resume()
		if !p.Running() {
			t.restart(p)
		}
	}
}

func (t *trial) restart(p *site.Process) {
	if err := p.Start(); err != nil {
		t.log("%v", err)
	}
}

// strike applies a fault and returns how to undo it; nil when there is nothing to undo.
func (t *trial) strike(ctx context.Context, f plan.Fault) func() {
	t.log("fault: %v", f)
	p := t.site.Process(f.Target)
	switch f.Kind {
	case plan.Kill:
		p.Kill()
		return func() { t.restart(p) }
	case plan.Stop:
		if err := p.Stop(); err != nil {
			t.fail(err)
		}
		return func() { t.restart(p) }
	case plan.Pause:
		p.Pause()
		return p.Resume
	case plan.CutBoth, plan.CutUp, plan.CutDown, plan.Delay, plan.HalfOpen, plan.Refuse:
		return t.strikeLinks(f)
	case plan.Outage:
		return t.outage()
	case plan.Compact:
		t.compact(ctx)
	case plan.KillWorkload:
		t.killWorkload(f)
	case plan.Scale:
		t.scale(ctx, f)
	case plan.Switch:
		t.switchPolicy(ctx, f)
	case plan.Deploy:
		t.deploy(ctx, f)
	case plan.Drain:
		return t.drain(ctx, f)
	case plan.Move:
		t.move(ctx, f)
	case plan.PowerCut:
		node := t.site.Node(f.Target)
		t.markKilled(node.PowerCut())
		return func() { t.restart(node.Process) }
	case plan.FillDisk:
		return t.fillDisk(f)
	}
	return nil
}

func (t *trial) fillDisk(f plan.Fault) func() {
	d := t.disks[f.Target]
	if err := d.fill(); err != nil {
		t.fail(err)
	}
	t.killOne(0, func(r record.Run) bool { return r.Node == f.Target })
	return func() {
		if err := d.free(); err != nil {
			t.fail(err)
		}
	}
}

func (t *trial) strikeLinks(f plan.Fault) func() {
	var hurt proxy.Fault
	switch f.Kind {
	case plan.CutUp:
		hurt.CutUp = true
	case plan.CutDown:
		hurt.CutDown = true
	case plan.Delay:
		hurt.Delay = time.Duration(f.Number) * time.Millisecond
	case plan.HalfOpen:
		hurt.HalfOpen = true
	case plan.Refuse:
		hurt.Refuse = true
	default:
		hurt.CutUp, hurt.CutDown = true, true
	}
	pairs := t.site.Links(f.Target)
	if f.Peer != "" {
		pairs = []site.Pair{{From: f.Target, To: f.Peer}}
	}
	set := func(fault proxy.Fault) {
		for _, pair := range pairs {
			t.site.Link(pair).Set(fault)
		}
	}
	set(hurt)
	return func() { set(proxy.Fault{}) }
}

func (t *trial) outage() func() {
	members := t.site.Members()
	for _, m := range members {
		m.Kill()
	}
	return func() {
		for _, m := range members {
			if !m.Running() {
				t.restart(m.Process)
			}
		}
	}
}

// compact compacts etcd's history up to the recorded revision.
func (t *trial) compact(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cli, err := clientv3.New(clientv3.Config{Endpoints: t.site.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.fail(err)
		return
	}
	defer cli.Close()
	if _, err := cli.Compact(ctx, t.history.Rev()); err != nil {
		t.log("not compacted: %v", err)
	}
}

func (t *trial) killWorkload(f plan.Fault) {
	t.killOne(f.Number, func(r record.Run) bool { return r.Group == f.Target })
}

// killOne kills the process at a position among the selected runs.
func (t *trial) killOne(position int, of func(record.Run) bool) {
	runs, err := record.Read(t.recordDir())
	if err != nil {
		t.fail(err)
		return
	}
	runs = slices.DeleteFunc(living(runs), func(r record.Run) bool { return !of(r) })
	slices.SortFunc(runs, func(a, b record.Run) int { return strings.Compare(a.Name, b.Name) })
	if len(runs) == 0 {
		t.log("not killed: none lives")
		return
	}
	victim := runs[position%len(runs)]
	t.markKilled([]int{victim.PID})
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.log("not killed: %v", err)
		return
	}
	t.log("killed %v", victim)
}

// scale sends one request, whose outcome during faults is unknown.
func (t *trial) scale(ctx context.Context, f plan.Fault) {
	_, err := t.api.do(ctx, http.MethodPost, "/api/v1/groups/"+f.Target+"/scale", map[string]int{"targetInstances": f.Number})
	if err != nil {
		t.log("the scale was not confirmed: %v", err)
	}
}

func (t *trial) switchPolicy(ctx context.Context, f plan.Fault) {
	_, err := t.api.do(ctx, http.MethodPatch, "/api/v1/groups/"+f.Target, map[string]string{"onNodeLoss": f.Policy()})
	if err != nil {
		t.log("the switch was not confirmed: %v", err)
	}
}

func (t *trial) markKilled(pids []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pid := range pids {
		t.killed[pid] = true
	}
}

// fail records a problem found while faults are active.
func (t *trial) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, err.Error())
}
