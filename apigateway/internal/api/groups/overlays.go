package groups

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops/timetable"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store/view"
)

// overlayFields are the writable fields of an overlay.
type overlayFields struct {
	Description string            `json:"description"`
	Groups      []fleet.GroupName `json:"groups"`
	Selector    resource.Values   `json:"selector"`
	// Cron is empty and DurationSeconds is 0 for an overlay with From and Until.
	Cron            string         `json:"cron"`
	DurationSeconds int            `json:"durationSeconds"`
	From            *time.Time     `json:"from"`
	Until           *time.Time     `json:"until"`
	Timezone        *string        `json:"timezone"`
	Overlay         overlayChanges `json:"overlay"`
	Enabled         *bool          `json:"enabled"`
}

// overlayChanges are the fields of groups that an overlay changes; null ones stay.
type overlayChanges struct {
	MinInstances       *int               `json:"minInstances"`
	MaxInstances       *int               `json:"maxInstances"`
	ScalingMode        *fleet.ScalingMode `json:"scalingMode"`
	Maintenance        *bool              `json:"maintenance"`
	MaintenanceMessage string             `json:"maintenanceMessage"`
}

// overlay is an overlay in an answer.
type overlay struct {
	Name string `json:"name"`
	overlayFields
	Active bool `json:"active"`
	// ActiveUntil is null unless Active.
	ActiveUntil *time.Time `json:"activeUntil"`
	// NextStart is null if no further window begins.
	NextStart *time.Time `json:"nextStart"`
	// AffectedGroups are all groups that it names or selects.
	AffectedGroups []fleet.GroupName `json:"affectedGroups"`
	UpdatedBy      string            `json:"updatedBy"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

// overlayBody is the body of a request.
type overlayBody struct {
	Name *string `json:"name"`
	overlayFields
	Active         json.RawMessage `json:"active"`
	ActiveUntil    json.RawMessage `json:"activeUntil"`
	NextStart      json.RawMessage `json:"nextStart"`
	AffectedGroups json.RawMessage `json:"affectedGroups"`
	UpdatedBy      json.RawMessage `json:"updatedBy"`
	UpdatedAt      json.RawMessage `json:"updatedAt"`
}

// event is an overlay of one group in the format of PrexorCloud.
type event struct {
	Name            string          `json:"name"`
	Description     string          `json:"description"`
	Group           fleet.GroupName `json:"group"`
	Cron            string          `json:"cron"`
	Timezone        string          `json:"timezone"`
	DurationSeconds int             `json:"durationSeconds"`
	Overlay         overlayChanges  `json:"overlay"`
}

// activeEvent is an active overlay of one group.
type activeEvent struct {
	EventName   string          `json:"eventName"`
	Group       fleet.GroupName `json:"group"`
	ActiveSince time.Time       `json:"activeSince"`
	ActiveUntil time.Time       `json:"activeUntil"`
	Overlay     overlayChanges  `json:"overlay"`
}

func (a *API) overlayRoutes() []server.Route {
	see, change := server.Needs(auth.GroupsView), server.Needs(auth.GroupsUpdate)
	return []server.Route{
		server.Get("/api/v1/overlays", see, a.listOverlays),
		server.Get("/api/v1/overlays/:name", see, a.getOverlay),
		server.Put("/api/v1/overlays/:name", change, a.putOverlay).Rehearses().Makes(),
		server.Patch("/api/v1/overlays/:name", change, a.patchOverlay).Rehearses(),
		server.Delete("/api/v1/overlays/:name", change, a.deleteOverlay).Rehearses(),
		server.Get("/api/v1/events", server.Needs(auth.EventsView), a.listEvents),
		server.Get("/api/v1/events/active", server.Needs(auth.EventsView), a.listActiveEvents),
	}
}

func overlayFieldsOf(o schedule.Overlay) overlayFields {
	return overlayFields{
		Description: o.Description, Groups: *resource.List(o.Groups), Selector: *resource.ValuesOf(o.Selector), Cron: o.Cron, DurationSeconds: o.DurationSeconds,
		From: resource.OrNull(o.From), Until: resource.OrNull(o.Until), Timezone: &o.Timezone, Overlay: overlayChangesOf(o.Changes), Enabled: &o.Enabled,
	}
}

func overlayChangesOf(c schedule.Changes) overlayChanges {
	return overlayChanges{MinInstances: c.Min, MaxInstances: c.Max, ScalingMode: resource.OrNull(c.Mode), Maintenance: c.Maintenance, MaintenanceMessage: c.Message}
}

// given returns the overlay that the client describes.
func (f overlayFields) given(name string) schedule.Overlay {
	out := schedule.Overlay{
		Name: name, Description: f.Description, Groups: f.Groups, Selector: f.Selector.Given(), Cron: f.Cron, DurationSeconds: f.DurationSeconds,
		Timezone: utc, Enabled: true,
		Changes: schedule.Changes{Min: f.Overlay.MinInstances, Max: f.Overlay.MaxInstances, Maintenance: f.Overlay.Maintenance, Message: f.Overlay.MaintenanceMessage},
	}
	if f.Overlay.ScalingMode != nil {
		out.Changes.Mode = fleet.ScalingMode(strings.ToUpper(string(*f.Overlay.ScalingMode)))
	}
	resource.Set(&out.From, f.From)
	resource.Set(&out.Until, f.Until)
	out.From, out.Until = out.From.UTC(), out.Until.UTC()
	resource.Set(&out.Timezone, f.Timezone)
	resource.Set(&out.Enabled, f.Enabled)
	return out
}

func overlayOf(s *view.Snapshot, now time.Time) func(*schedule.Overlay) overlay {
	return func(o *schedule.Overlay) overlay {
		out := overlay{
			Name: o.Name, overlayFields: overlayFieldsOf(*o), AffectedGroups: *resource.List(scheduleops.GroupsOf(s, o)), UpdatedBy: o.By, UpdatedAt: o.At,
		}
		for _, is := range s.ActiveOverlays().Overlays {
			if is.Name == o.Name && is.On {
				out.Active, out.ActiveUntil = true, &is.Until
			}
		}
		if next, ok := timetable.NextWindow(o, scheduleops.TimesOf(o), now); ok && o.Enabled {
			out.NextStart = &next.From
		}
		return out
	}
}

func overlays(s *view.Snapshot) []*schedule.Overlay {
	all := make([]*schedule.Overlay, 0, s.Overlays.Len())
	for _, o := range s.Overlays.All() {
		all = append(all, o)
	}
	return all
}

func (a *API) listOverlays(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	server.SendPage(c, overlays(s), resource.SmallPage, overlayOf(s, a.cfg.Operations.Now()))
}

func (a *API) getOverlay(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	o, ok := s.Overlays.Get(c.Param("name"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no overlay with that name"))
		return
	}
	resource.SendRecord(c, overlayOf(s, a.cfg.Operations.Now())(o), o.ModRev, nil)
}

func (a *API) putOverlay(c *gin.Context) {
	var b overlayBody
	name, rev, ok := resource.BindRecord(c, "overlay", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	a.writeOverlay(c, scheduleops.OverlayWrite{
		Name: name, IfMatch: rev, Make: func(*schedule.Overlay) (schedule.Overlay, error) { return b.given(name), nil },
	})
}

// patchOverlay applies a merge patch (RFC 7396): null restores a default, or removes a label or a change.
func (a *API) patchOverlay(c *gin.Context) {
	var b overlayBody
	name, rev, patch, ok := resource.BindPatch(c, "overlay", &b, func() *string { return b.Name }, overlayFields{})
	if !ok {
		return
	}
	a.writeOverlay(c, scheduleops.OverlayWrite{Name: name, Update: true, IfMatch: rev, Make: func(old *schedule.Overlay) (schedule.Overlay, error) {
		now, err := resource.Patched(overlayFieldsOf(*old), patch)
		return now.given(name), err
	}})
}

func (a *API) writeOverlay(c *gin.Context, w scheduleops.OverlayWrite) {
	w.DryRun = server.DryRun(c)
	done, err := a.cfg.Operations.WriteOverlay(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if w.DryRun {
		var before schedule.Overlay
		if done.Before != nil {
			before = *done.Before
		}
		out := resource.DryRun("overlay", w.Name, done.Before != nil, resource.Differences(overlayFieldsOf(before), overlayFieldsOf(done.After)))
		out["affectedGroups"] = *resource.List(scheduleops.GroupsOf(a.cfg.Operations.Snapshot(), &done.After))
		c.JSON(http.StatusOK, out)
		return
	}
	resource.SendPut(c, done.Before == nil, done.After.ModRev, overlayOf(a.cfg.Operations.Snapshot(), a.cfg.Operations.Now())(&done.After))
}

func (a *API) deleteOverlay(c *gin.Context) {
	resource.DeleteRecord(c, a.cfg.Operations.DeleteOverlay, gin.H{"dryRun": true, "action": "delete", "overlay": c.Param("name"), "diff": []resource.FieldChange{}})
}

// listEvents answers with one entry per overlay and group. An overlay with from and until has no cron
// expression.
func (a *API) listEvents(c *gin.Context) {
	s, out := a.cfg.Operations.Snapshot(), []event{}
	for _, o := range overlays(s) {
		seconds := o.DurationSeconds
		if o.Cron == "" {
			seconds = int(o.Until.Sub(o.From) / time.Second)
		}
		for _, group := range scheduleops.GroupsOf(s, o) {
			out = append(out, event{o.Name, o.Description, group, o.Cron, o.Timezone, seconds, overlayChangesOf(o.Changes)})
		}
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) listActiveEvents(c *gin.Context) {
	s, out := a.cfg.Operations.Snapshot(), []activeEvent{}
	for _, is := range s.ActiveOverlays().Overlays {
		for name, g := range s.Groups.All() {
			if !g.Deleting && is.Covers(g) {
				out = append(out, activeEvent{is.Name, name, is.Begun, is.Until, overlayChangesOf(is.Changes)})
			}
		}
	}
	c.JSON(http.StatusOK, gin.H{"active": out})
}
