package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// mostSteps bounds the transactions of one operation.
	mostSteps = 30
	// operationWithin limits one operation, including the takeover after the enforcer was killed.
	operationWithin = 60 * time.Second
)

// operation is something that the enforcer carries out in several transactions.
type operation struct {
	name  string
	begin func(context.Context) error
	// ended reports whether it is over.
	ended func(context.Context, *history.State) (bool, error)
}

// The enforcer is killed after each transaction of a deployment, a drain and a move.
func TestADeploymentADrainAndAMoveEndWhereverTheEnforcerIsKilled(t *testing.T) {
	var out bytes.Buffer
	h, err := newHarness(t.Context(), "", false, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	nodes := min(2, h.features.Nodes)
	s := plan.Scenario{
		Seed: 1, Members: 1, Schedulers: 1, Enforcers: 1, Gateways: 1, Sources: 1, Nodes: nodes, MemoryMiB: 4000,
		Groups: []plan.Group{{Name: "lobby1", Count: 2, Final: 2, MemoryMiB: 50}, {Name: "world", Static: true, Count: 1, Final: 1, MemoryMiB: 50}},
		// They explain the ends of instances. Nothing else happens.
		Faults: []plan.Fault{{Kind: plan.Deploy, Target: "lobby1", Number: 2}, {Kind: plan.Drain, Target: "node-1", Number: 2}, {Kind: plan.Move, Target: "world-1"}},
	}
	steps := mostSteps
	if os.Getenv("ORRERY_E2E") != "processes" { // the other steps take minutes
		steps = 1
	}
	r := &trial{scenario: s, dir: filepath.Join(h.dir, "steps"), programs: h.programs, out: &out, start: time.Now()}
	r.story = func(ctx context.Context) []string { return r.killAtSteps(ctx, steps) }
	if broken := r.run(t.Context()); len(broken) > 0 {
		h.failures++
		t.Errorf("%s\n%q\nfiles in %s", out.String(), broken, r.dir)
	}
	t.Log(out.String())
}

// killAtSteps performs each operation several times. The n-th time it kills the enforcer after the
// n-th transaction, until all transactions had their turn.
func (t *trial) killAtSteps(ctx context.Context, most int) []string {
	if err := t.declare(ctx); err != nil {
		return collect(err)
	}
	count := func(g plan.Group) int { return g.Final }
	if left := t.settle(ctx, startPatience, count); len(left) > 0 {
		return left
	}
	operations := []operation{t.deployment(), t.draining()}
	if t.scenario.Nodes > 1 {
		operations = append(operations, t.moving())
	}
	for _, op := range operations {
		for step := 1; step <= most; step++ {
			killed, err := t.killAt(ctx, op, step)
			if err != nil {
				return collect(fmt.Errorf("%s, killed after transaction %d: %w", op.name, step, err))
			}
			if left := t.settle(ctx, operationWithin, count); len(left) > 0 {
				return append([]string{fmt.Sprintf("%s, killed after transaction %d:", op.name, step)}, left...)
			}
			if !killed {
				t.log("%s has less than %d transactions", op.name, step)
				break
			}
			if step == mostSteps {
				return []string{fmt.Sprintf("%s has more than %d transactions", op.name, step)}
			}
		}
	}
	return nil
}

// killAt performs an operation and kills the enforcer after one of its transactions. killed is false
// if it has fewer.
func (t *trial) killAt(ctx context.Context, op operation, step int) (killed bool, err error) {
	if err := t.catchUp(ctx); err != nil {
		return false, err
	}
	from := t.history.Rev()
	if err := op.begin(ctx); err != nil {
		return false, err
	}
	for deadline := time.Now().Add(operationWithin); ; {
		events, err := t.history.Events()
		if err != nil {
			return killed, err
		}
		if n := transactions(events, from); !killed && n >= step {
			killed = true
			t.log("%s: the enforcer is killed after transaction %d", op.name, n)
			p := t.site.Process("enforcer-1")
			p.Kill()
			t.restart(p)
		}
		last, err := history.Last(events)
		if err != nil {
			return killed, err
		}
		over, err := op.ended(ctx, last)
		switch {
		case err == nil && over:
			return killed, nil
		case ctx.Err() != nil || time.Now().After(deadline):
			return killed, fmt.Errorf("it did not end within %v: %w", operationWithin, err)
		}
		pause.For(ctx, time.Millisecond)
	}
}

// transactions counts the enforcer's transactions after a revision.
func transactions(events []history.Event, after int64) int {
	n, last := 0, after
	for _, e := range events {
		kind, _, ok := keys.Split(e.Key)
		if e.ModRev > last && ok && (kind == "instances" || kind == "orders" || kind == "deployment-progress" || kind == "moves") {
			n++
			last = e.ModRev
		}
	}
	return n
}

func (t *trial) deployment() operation {
	number := int64(0)
	return operation{
		name: "a deployment",
		begin: func(ctx context.Context) error {
			number++
			_, err := t.api.do(ctx, http.MethodPost, "/api/v1/groups/lobby1/deploy", map[string]int{"batchSize": 2, "replacementTimeoutSeconds": 60})
			return err
		},
		ended: func(_ context.Context, s *history.State) (bool, error) {
			d, ok := s.Latest(fleet.GroupName("lobby1"))
			if ok && d.Number == number && d.State().Final() && d.Progress.Reason != "Replaced" {
				return true, fmt.Errorf("it ended as %s: %s", d.State(), d.Progress.Message)
			}
			return ok && d.Number == number && d.State().Final(), nil
		},
	}
}

// draining drains the node with an instance of the static group, and ends the drain.
func (t *trial) draining() operation {
	var path string
	return operation{
		name: "a drain",
		begin: func(ctx context.Context) error {
			world, err := t.world()
			if err != nil {
				return err
			}
			path = "/api/v1/nodes/" + string(world.Node())
			_, err = t.api.do(ctx, http.MethodPost, path+"/drain", map[string]any{"shutdown": false, "timeout": 20})
			return err
		},
		ended: func(ctx context.Context, _ *history.State) (bool, error) {
			state, err := t.drainState(ctx, path)
			if err != nil || state != "COMPLETED" {
				return false, err
			}
			_, err = t.api.do(ctx, http.MethodPost, path+"/undrain", nil)
			return err == nil, err
		},
	}
}

// moving moves the instance of the static group to the other node.
func (t *trial) moving() operation {
	var before string // the move before
	return operation{
		name: "a move",
		begin: func(ctx context.Context) error {
			_, err := t.api.do(ctx, http.MethodPost, "/api/v1/instances/world-1/move", map[string]int{"deadlineSeconds": 0})
			return err
		},
		ended: func(_ context.Context, s *history.State) (bool, error) {
			for _, m := range s.Moves {
				switch {
				case m.ID == before || m.Active():
				case m.Step != move.Done:
					return true, fmt.Errorf("it ended as %s: %s", m.Step, m.Detail)
				default:
					before = m.ID
					return true, nil
				}
			}
			return false, nil
		},
	}
}

// world returns the instance of the static group.
func (t *trial) world() (*fleet.Instance, error) {
	last, err := t.recorded()
	if err != nil {
		return nil, err
	}
	for _, i := range last.Instances() {
		if i.Intent.Group == "world" {
			return i, nil
		}
	}
	return nil, errors.New("the static group has no instance")
}
