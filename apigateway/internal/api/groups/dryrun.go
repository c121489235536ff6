package groups

import (
	"context"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/client"
)

// dryRun is the answer to a dry run.
type dryRun struct {
	DryRun bool `json:"dryRun"`
	// Action is create, update, delete, start, or none.
	Action string                 `json:"action"`
	Group  string                 `json:"group"`
	Diff   []resource.FieldChange `json:"diff"`
	// Start and Stop are the names of the instances that would start or stop.
	Start []string `json:"start"`
	Stop  []string `json:"stop"`
	// Placements are where the scheduler would place the started instances.
	Placements []dryRunPlacement `json:"placements"`
	// Notes are further effects and unknowns, one sentence each.
	Notes []string `json:"notes"`
	// Message explains the state of the group after the change. It is absent if there is nothing to
	// explain.
	Message string `json:"message,omitempty"`
}

// dryRunPlacement is where an instance would run.
type dryRunPlacement struct {
	Name string `json:"name"`
	// Effect is placed, or pending if the instance would wait.
	Effect client.Effect `json:"effect"`
	// Node is empty if the instance would wait. Reason and Message then say why.
	Node    fleet.NodeID `json:"node,omitempty"`
	Reason  fleet.Reason `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
}

func newDryRun(action string, group fleet.GroupName) dryRun {
	return dryRun{
		DryRun: true, Action: action, Group: string(group), Diff: []resource.FieldChange{}, Start: []string{}, Stop: []string{},
		Placements: []dryRunPlacement{}, Notes: []string{},
	}
}

// dryRunTimeout bounds how long a dry run waits for the scheduler.
const dryRunTimeout = 3 * time.Second

// addPlacements adds where count new instances of a group with this spec would run.
func (a *API) addPlacements(c *gin.Context, r *dryRun, g *fleet.Group, count int) {
	if count == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), dryRunTimeout)
	defer cancel()
	q := client.Question{Place: &client.PlaceQuestion{Group: g.Name, Count: min(count, client.MaxPlace), Spec: &g.Spec}}
	sim, _, err := a.cfg.Schedulers.Simulate(ctx, q)
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("cannot predict where the %d new instances would run: %s", count, errs.MessageOf(err)))
		return
	}
	for _, o := range sim.Instances {
		r.Placements = append(r.Placements, dryRunPlacement{Name: o.Name, Effect: o.Effect, Node: o.Node, Reason: o.Reason, Message: o.Message})
	}
	r.Notes = append(r.Notes, sim.Notes...)
}

// addCounts adds how many instances the enforcer would start or stop for a group with this spec.
func (a *API) addCounts(c *gin.Context, s *view.Snapshot, r *dryRun, before, after *fleet.Group) {
	living := 0
	for i := range s.GroupInstances(after.Name) {
		if i.Living(after.Spec.KeepsLost()) {
			living++
		}
	}
	switch wanted, waits := s.Target(after), unmet(s, after); {
	case after.Spec.Scaling.Mode == fleet.ScalingManual:
	case living < wanted && waits != "":
		r.Notes = append(r.Notes, fmt.Sprintf("%d instances would start later: %s", wanted-living, waits))
	case living < wanted && s.MaintenanceOf(after).On:
		r.Notes = append(r.Notes, fmt.Sprintf("%d instances would start after the maintenance", wanted-living))
	case living < wanted:
		from := len(r.Placements)
		a.addPlacements(c, r, after, wanted-living)
		for _, p := range r.Placements[from:] {
			r.Start = append(r.Start, p.Name)
		}
		loop, crashed := s.CrashLoops.Get(after.Name)
		if !crashed {
			break
		}
		if ends := loop.EndsAt(after, compose.Ancestors(after, s.Groups.Get)); a.cfg.Operations.Now().Before(ends) {
			r.Notes = append(r.Notes, "no instance starts before "+ends.UTC().Format(time.RFC3339)+": the group crashed too often")
		}
	case before != nil && wanted < s.Target(before) && living > wanted:
		r.Notes = append(r.Notes, fmt.Sprintf("up to %d of its %d instances would stop, the youngest first, each when it has no players", living-wanted, living))
	}
	r.Notes = append(r.Notes, scalingNotes(s, before, after, a.cfg.Operations.Now())...)
	if r.Action == "update" && living > 0 && groupops.ReachesInstances(before.Spec, after.Spec) {
		r.Notes = append(r.Notes, fmt.Sprintf("the %d existing instances keep their old spec: deploy the group to apply the change", living))
	}
}
