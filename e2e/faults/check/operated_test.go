package check_test

import (
	"slices"
	"testing"

	"github.com/orreryhq/orrery/e2e/faults/check"
	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func retires(seconds int) func(*fleet.Intent) {
	return func(i *fleet.Intent) {
		i.Retire = &fleet.Retirement{Reason: fleet.ReasonDeployment, DeadlineSeconds: seconds}
	}
}

func players(id fleet.InstanceID, n int) write {
	return write{keys.ReportPart("node-1", id.Part()), reports.ReportPart{Instances: map[fleet.InstanceID]reports.InstanceReport{id: {Players: n, PlayersKnown: true}}}}
}

func TestNoInstanceWithPlayersIsStoppedBeforeItsDeadline(t *testing.T) {
	online := func(t *testing.T) *past { return begun(t).txn(placement(first)).txn(status(first, fleet.Online)) }
	for name, c := range map[string]struct {
		past *past
		want string
	}{
		"an empty one":                {online(t).txn(players(first, 0)).txn(intent(first, retires(60))).txn(order(first, fleet.ReasonDeployment)), ""},
		"one with players":            {online(t).txn(players(first, 1)).txn(intent(first, retires(60))).txn(order(first, fleet.ReasonDeployment)), "with 1 players before its deadline"},
		"one whose players left":      {online(t).txn(players(first, 1)).txn(players(first, 0)).txn(order(first, fleet.ReasonDeployment)), ""},
		"one that its agent stops":    {online(t).txn(players(first, 1)).txn(status(first, fleet.Stopping)).txn(order(first, fleet.ReasonMoved)), ""},
		"one that has ended":          {online(t).txn(players(first, 1)).txn(status(first, fleet.Stopped)).txn(order(first, fleet.ReasonMoved)), ""},
		"one at its deadline":         {online(t).txn(players(first, 1)).txn(intent(first, retires(0))).txn(order(first, fleet.ReasonDeployment)), ""},
		"one that a user stops":       {online(t).txn(players(first, 1)).txn(order(first, fleet.ReasonStopRequested)), ""},
		"one without a retirement":    {online(t).txn(players(first, 1)).txn(order(first, fleet.ReasonNodeDrained)), "with 1 players before its deadline"},
		"a drain that is over":        {online(t).txn(players(first, 1)).txn(drained(0)).txn(order(first, fleet.ReasonNodeDrained)), ""},
		"a drain that has just begun": {online(t).txn(players(first, 1)).txn(drained(60)).txn(order(first, fleet.ReasonNodeDrained)), "with 1 players before its deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := check.Occupied(c.past.events)
			if err != nil {
				t.Fatal(err)
			}
			one(t, got, c.want)
		})
	}
}

func drained(seconds int) write {
	return write{keys.NodeDesired("node-1"), fleet.NodeDesired{Node: "node-1", Drain: &fleet.NodeDrain{ID: "d", TimeoutSeconds: seconds}}}
}

// moves is a step of the first instance's move from node-1 to node-2.
func moves(to move.Step) write {
	return write{keys.Move(first), move.Move{ID: "m", Name: "lobby-1", Source: "node-1", Target: "node-2", Step: to}}
}

func TestOnlyCompletedMovesTakeTheDataAlong(t *testing.T) {
	for name, c := range map[string]struct {
		steps []move.Step
		want  []check.Arrival
	}{
		"one that ended":             {[]move.Step{move.Copying, move.Starting, move.Done}, []check.Arrival{{Name: "lobby-1", Source: "node-1", Target: "node-2", Copied: 50}}},
		"one of a stopped instance":  {[]move.Step{move.Copying, move.Done}, []check.Arrival{{Name: "lobby-1", Source: "node-1", Target: "node-2", Copied: 50}}},
		"one that failed":            {[]move.Step{move.Copying, move.Failed}, nil},
		"one that failed at the end": {[]move.Step{move.Copying, move.Starting, move.Failed}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := begun(t)
			for _, s := range c.steps {
				p.txn(moves(s))
			}
			if got, err := check.Moved(p.events); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestDeploymentsDrainsAndMovesEnd(t *testing.T) {
	declared := write{keys.Group(group), fleet.Group{Name: group}}
	deploy := write{keys.Deployment(group, 1), deployment.Deployment{Group: group, Number: 1}}
	progress := func(s deployment.State, message string) write {
		return write{keys.DeploymentProgress(group, 1), deployment.Progress{Group: group, Number: 1, State: s, Reason: deployment.ReasonTimeout, Message: message}}
	}
	of := func(n int64) func(*fleet.Intent) { return func(i *fleet.Intent) { i.Deployment = n } }
	base := func(t *testing.T) *past { return begun(t).txn(declared) }
	lost := status(first, fleet.Offline)
	for name, c := range map[string]struct {
		past *past
		want string
	}{
		"no deployment":                  {base(t), ""},
		"one that has not begun":         {base(t).txn(deploy), "deployment 1 of lobby is IN_PROGRESS"},
		"one that lasts":                 {base(t).txn(deploy, progress(deployment.Paused, "x")), "is PAUSED"},
		"one that failed and says why":   {base(t).txn(deploy, progress(deployment.Failed, "x")), ""},
		"one that does not say why":      {base(t).txn(deploy, progress(deployment.Failed, "")), "does not say why"},
		"a completed one":                {base(t).txn(deploy, intent(first, of(1)), progress(deployment.Completed, "x")), ""},
		"an outdated instance":           {base(t).txn(deploy, progress(deployment.Completed, "x")), "lobby-1 is of deployment 0"},
		"one whose node was lost":        {base(t).txn(deploy).txn(placement(first)).txn(lost).txn(progress(deployment.Completed, "x")).txn(status(first, fleet.Online)), ""},
		"one whose node was lost before": {base(t).txn(deploy).txn(placement(first)).txn(lost).txn(status(first, fleet.Online)).txn(progress(deployment.Completed, "x")), "lobby-1 is of deployment 0"},
		"one that still retires":         {base(t).txn(deploy, intent(first, of(1), retires(1)), progress(deployment.Completed, "x")), "takes no players"},
		"a drain":                        {base(t).txn(drained(1)), "node-1 is still drained"},
		"a move that lasts":              {base(t).txn(moves(move.Copying)), "the move of lobby-1 to node-2 is COPYING"},
		"a move that failed":             {base(t).txn(moves(move.Failed)), "failed and does not say why"},
		"a move that is over":            {base(t).txn(moves(move.Done)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			last, err := history.Last(c.past.events)
			if err != nil {
				t.Fatal(err)
			}
			spared, err := check.Spared(c.past.events)
			if err != nil {
				t.Fatal(err)
			}
			one(t, check.Operated(last, spared), c.want)
		})
	}
}
