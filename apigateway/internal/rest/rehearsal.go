package rest

import (
	"context"
	"fmt"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/client"
)

// rehearsal is what a dry run found.
type rehearsal struct {
	DryRun bool `json:"dryRun"`
	// Action is create, update, delete, start, or none.
	Action string        `json:"action"`
	Group  string        `json:"group"`
	Diff   []fieldChange `json:"diff"`
	// Start and Stop are the names of the instances that would be.
	Start []string `json:"start"`
	Stop  []string `json:"stop"`
	// Placements are where those that would be started would go, as the scheduler says.
	Placements []rehearsedPlace `json:"placements"`
	// Notes say what else would follow, or is not known, a sentence each.
	Notes []string `json:"notes"`
	// Message says what else would come of it; absent when nothing would.
	Message string `json:"message,omitempty"`
}

// rehearsedPlace is where an instance would go.
type rehearsedPlace struct {
	Name string `json:"name"`
	// Effect is placed, or pending where it would wait.
	Effect client.Effect `json:"effect"`
	// Node is empty where it would wait; then Reason and Message say why.
	Node    fleet.NodeID `json:"node,omitempty"`
	Reason  fleet.Reason `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
}

func newRehearsal(action string, group fleet.GroupName) rehearsal {
	return rehearsal{
		DryRun: true, Action: action, Group: string(group), Diff: []fieldChange{}, Start: []string{}, Stop: []string{},
		Placements: []rehearsedPlace{}, Notes: []string{},
	}
}

// rehearsalPatience is how long a dry run waits for the scheduler.
const rehearsalPatience = 3 * time.Second

// addPlaces adds where so many instances of a group would go if it were as given.
func (a *API) addPlaces(c *gin.Context, r *rehearsal, g *fleet.Group, count int) {
	if count == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), rehearsalPatience)
	defer cancel()
	q := client.Question{Place: &client.PlaceQuestion{Group: g.Name, Count: min(count, client.MaxPlace), Spec: &g.Spec}}
	sim, _, err := a.cfg.Schedulers.Simulate(ctx, q)
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("where the %d that would be started would go is not known: %s", count, errs.MessageOf(err)))
		return
	}
	for _, o := range sim.Instances {
		r.Placements = append(r.Placements, rehearsedPlace{Name: o.Name, Effect: o.Effect, Node: o.Node, Reason: o.Reason, Message: o.Message})
	}
	r.Notes = append(r.Notes, sim.Notes...)
}

// addCounts adds what the enforcer would make of a group's number of instances if it were as given.
func (a *API) addCounts(c *gin.Context, s *view.Snapshot, r *rehearsal, before, after *fleet.Group) {
	living := 0
	for i := range s.GroupInstances(after.Name) {
		if i.Living(after.Spec.KeepsLost()) {
			living++
		}
	}
	switch wanted := after.Spec.Scaling.Min; {
	case after.Spec.Scaling.Mode == fleet.ScalingManual:
	case living < wanted && after.Spec.Maintenance.On:
		r.Notes = append(r.Notes, fmt.Sprintf("%d would be started when the maintenance ends", wanted-living))
	case living < wanted:
		from := len(r.Placements)
		a.addPlaces(c, r, after, wanted-living)
		for _, p := range r.Placements[from:] {
			r.Start = append(r.Start, p.Name)
		}
		loop, crashed := s.CrashLoops.Get(after.Name)
		if !crashed {
			break
		}
		if ends := loop.EndsAt(after, fleet.Ancestors(after, s.Groups.Get)); a.cfg.Now().Before(ends) {
			r.Notes = append(r.Notes, "nothing is started before "+ends.UTC().Format(time.RFC3339)+", because it crashed too often")
		}
	case before != nil && wanted < before.Spec.Scaling.Min && living > wanted:
		r.Notes = append(r.Notes, fmt.Sprintf("up to %d of its %d instances would be stopped, each once it is empty of players, the youngest first", living-wanted, living))
	}
	if r.Action == "update" && living > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("the %d instances there are stay as they were made: restart them to have them made anew", living))
	}
}
