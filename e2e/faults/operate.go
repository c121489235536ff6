package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// The settings of deployments, in seconds.
	deployDeadline, deployGrace, deployTimeout = 2, 1, 15
	// operateWithin is the additional time until deployments, drains and moves have ended.
	operateWithin = 60 * time.Second
	// heartbeatEvery is the interval at which players are reported.
	heartbeatEvery = 300 * time.Millisecond
)

// deploy requests a deployment, whose outcome during faults is unknown.
func (t *trial) deploy(ctx context.Context, f plan.Fault) {
	body := map[string]int{
		"batchSize": f.Number, "deadlineSeconds": deployDeadline, "graceSeconds": deployGrace, "replacementTimeoutSeconds": deployTimeout,
	}
	if _, err := t.api.do(ctx, http.MethodPost, "/api/v1/groups/"+f.Target+"/deploy", body); err != nil {
		t.log("the deployment was not confirmed: %v", err)
	}
}

// drain drains a node, with an unknown outcome, and returns how to end that.
func (t *trial) drain(ctx context.Context, f plan.Fault) func() {
	path := "/api/v1/nodes/" + f.Target
	if _, err := t.api.do(ctx, http.MethodPost, path+"/drain", map[string]any{"shutdown": false, "timeout": f.Number}); err != nil {
		t.log("the drain was not confirmed: %v", err)
	}
	return func() {
		if _, err := t.api.do(ctx, http.MethodPost, path+"/undrain", nil); err != nil {
			t.log("the end of the drain was not confirmed: %v", err)
		}
	}
}

// move requests a move, whose outcome during faults is unknown.
func (t *trial) move(ctx context.Context, f plan.Fault) {
	if _, err := t.api.do(ctx, http.MethodPost, "/api/v1/instances/"+f.Target+"/move", map[string]int{"deadlineSeconds": f.Number}); err != nil {
		t.log("the move was not confirmed: %v", err)
	}
}

// operates reports whether the scenario has what takes longer than the other faults.
func (t *trial) operates() bool {
	return t.scenario.Has(plan.Deploy, "") || t.scenario.Has(plan.Drain, "") || t.scenario.Has(plan.Move, "")
}

// patience is how long the scenario may take to converge after the last fault.
func (t *trial) patience() time.Duration {
	if t.operates() {
		return convergeWithin + operateWithin
	}
	return convergeWithin
}

// endDrains waits until the drains that still last are complete, and ends them.
func (t *trial) endDrains(ctx context.Context) error {
	for _, node := range t.scenario.NodeIDs() {
		if !t.scenario.Has(plan.Drain, node) {
			continue
		}
		path := "/api/v1/nodes/" + node
		for deadline := time.Now().Add(operateWithin); ; {
			state, err := t.drainState(ctx, path)
			if err == nil && state == "" {
				break
			}
			if err == nil && state == "COMPLETED" {
				if _, err = t.api.do(ctx, http.MethodPost, path+"/undrain", nil); err == nil {
					break
				}
			}
			if ctx.Err() != nil || time.Now().After(deadline) {
				return fmt.Errorf("the drain of %s did not end within %v: it is %q, %w", node, operateWithin, state, err)
			}
			pause.For(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

// endMoves waits until no instance moves. It cancels moves that last, because their targets may have no
// room.
func (t *trial) endMoves(ctx context.Context) error {
	for deadline := time.Now().Add(operateWithin / 2); ; pause.For(ctx, 100*time.Millisecond) {
		active, err := t.activeMoves(ctx)
		switch over := ctx.Err() != nil || time.Now().After(deadline); {
		case err == nil && len(active) == 0:
			return nil
		case err != nil && over:
			return fmt.Errorf("the moves are unknown: %w", err)
		case !over:
			continue
		}
		for id, m := range active {
			t.log("the move of %s to %s is %s, and is cancelled", m.Name, m.Target, m.Step)
			if _, err := t.api.do(ctx, http.MethodDelete, "/api/v1/instances/"+string(id)+"/move", nil); err != nil {
				t.log("not cancelled: %v", err) // it may have ended meanwhile
			}
		}
		return nil
	}
}

// activeMoves returns the moves that have not ended.
func (t *trial) activeMoves(ctx context.Context) (map[fleet.InstanceID]move.Move, error) {
	if err := t.catchUp(ctx); err != nil {
		return nil, err
	}
	last, err := t.recorded()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(last.Moves, func(_ fleet.InstanceID, m move.Move) bool { return !m.Active() })
	return last.Moves, nil
}

// recorded returns the latest state that the recorder saw.
func (t *trial) recorded() (*history.State, error) {
	events, err := t.history.Events()
	if err != nil {
		return nil, err
	}
	return history.Last(events)
}

// drainState returns the state of a node's drain, empty without one.
func (t *trial) drainState(ctx context.Context, path string) (string, error) {
	b, err := t.api.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	var node struct {
		Drain *struct{ State string }
	}
	if err := json.Unmarshal(b, &node); err != nil || node.Drain == nil {
		return "", err
	}
	return node.Drain.State, nil
}

// habit is what the player on an instance does.
type habit int

const (
	nobody habit = iota
	leaves       // as soon as the instance retires
	stays        // until it is disconnected
	habits
)

func habitOf(id fleet.InstanceID) habit { return habit(id.Part()) % habits }

// play reports the players of all online instances, until ctx ends. They all leave when the faults are over.
func (t *trial) play(ctx context.Context) {
	secret, err := os.ReadFile(t.site.SecretFile())
	if err != nil {
		t.fail(err)
		return
	}
	agents, web := map[string]*client.Client{}, &http.Client{Timeout: time.Second}
	defer web.CloseIdleConnections()
	reported := 0
	defer func() { t.log("players were reported %d times", reported) }()
	for pause.For(ctx, heartbeatEvery) {
		last, err := t.recorded()
		if err != nil {
			return // the check reports it
		}
		for id, i := range last.Instances() {
			node, ok := last.Nodes[i.Node()]
			if !ok || i.State() != fleet.Online || habitOf(id) == nobody {
				continue
			}
			players := 1
			if t.over.Load() || habitOf(id) == leaves && i.Retiring() {
				players = 0
			}
			if agents[node.AgentURL] == nil {
				agents[node.AgentURL] = client.New(web, node.AgentURL, string(secret))
			}
			if err := agents[node.AgentURL].Heartbeat(ctx, id, client.Heartbeat{Players: &players}); err != nil {
				break // the others on the node would fail as well
			}
			reported++
		}
	}
}
