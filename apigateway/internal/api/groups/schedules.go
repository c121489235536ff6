package groups

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops/timetable"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store/view"
)

// utc is the default time zone.
const utc = "UTC"

// scheduleFields are the writable fields of a schedule.
type scheduleFields struct {
	Description string `json:"description"`
	// Group, Instance or Node is what the action concerns; the others are null.
	Group    *fleet.GroupName `json:"group"`
	Instance *string          `json:"instance"`
	Node     *fleet.NodeID    `json:"node"`
	Action   schedule.Action  `json:"action"`
	Command  string           `json:"command"`
	// Drain is null for actions other than drain.
	Drain *drainFields `json:"drain"`
	// Backup is null for actions other than backup.
	Backup *backupFields `json:"backup"`
	// Count is null for actions without one.
	Count         *int               `json:"count"`
	Cron          string             `json:"cron"`
	Timezone      *string            `json:"timezone"`
	Warnings      []schedule.Warning `json:"warnings"`
	JitterSeconds int                `json:"jitterSeconds"`
	Overlap       *schedule.Overlap  `json:"overlap"`
	Enabled       *bool              `json:"enabled"`
}

// drainFields are the settings of a drain, as in the request for one node.
type drainFields struct {
	Timeout     *int   `json:"timeout"`
	Shutdown    bool   `json:"shutdown"`
	KickMessage string `json:"kickMessage"`
	MoveStatic  bool   `json:"moveStatic"`
}

// defaultKeep is how many backups of an instance a schedule keeps by default.
const defaultKeep = 7

// backupFields are the settings of a backup.
type backupFields struct {
	// Keep is 0 to keep all.
	Keep   *int     `json:"keep"`
	Before []string `json:"before"`
	Until  string   `json:"until"`
	After  []string `json:"after"`
}

// scheduled is a schedule in an answer.
type scheduled struct {
	Name string `json:"name"`
	scheduleFields
	// NextRun is null if the schedule is turned off or not due within five years.
	NextRun *time.Time `json:"nextRun"`
	Running *run       `json:"running"`
	LastRun *run       `json:"lastRun"`
	// QueuedRun is the due time of the run that waits for Running.
	QueuedRun *time.Time `json:"queuedRun"`
	UpdatedBy string     `json:"updatedBy"`
	UpdatedAt time.Time  `json:"updatedAt"`
}

// scheduleBody is the body of a request. It accepts the read-only fields so that a client can send back
// what it read.
type scheduleBody struct {
	Name *string `json:"name"`
	scheduleFields
	NextRun   json.RawMessage `json:"nextRun"`
	Running   json.RawMessage `json:"running"`
	LastRun   json.RawMessage `json:"lastRun"`
	QueuedRun json.RawMessage `json:"queuedRun"`
	UpdatedBy json.RawMessage `json:"updatedBy"`
	UpdatedAt json.RawMessage `json:"updatedAt"`
}

// run is a run of a schedule in an answer. Times and names that do not apply are null.
type run struct {
	Number      int64            `json:"number"`
	DueAt       *time.Time       `json:"dueAt"`
	RequestedBy *string          `json:"requestedBy"`
	StartedAt   time.Time        `json:"startedAt"`
	EndedAt     *time.Time       `json:"endedAt"`
	Result      *schedule.Result `json:"result"`
	Message     string           `json:"message"`
	Steps       []step           `json:"steps"`
}

type step struct {
	At            time.Time       `json:"at"`
	BeforeSeconds int             `json:"beforeSeconds"`
	Action        schedule.Action `json:"action"`
	Command       string          `json:"command"`
	StartedAt     *time.Time      `json:"startedAt"`
	EndedAt       *time.Time      `json:"endedAt"`
	Message       string          `json:"message"`
	Instances     []stepInstance  `json:"instances"`
	// Omitted counts instances that are not listed.
	Omitted int `json:"omitted"`
}

type stepInstance struct {
	// UID is null if the step starts new instances.
	UID     *fleet.InstanceID    `json:"uid"`
	Name    string               `json:"name"`
	State   schedule.TargetState `json:"state"`
	Message string               `json:"message"`
}

func (a *API) scheduleRoutes() []server.Route {
	see, change := server.Needs(auth.GroupsView), server.Needs(auth.GroupsUpdate)
	return server.Under("/api/v1/schedules",
		server.Get("", see, a.listSchedules),
		server.Get("/:name", see, a.getSchedule),
		server.Put("/:name", change, a.putSchedule).Rehearses().Makes(),
		server.Patch("/:name", change, a.patchSchedule).Rehearses(),
		server.Delete("/:name", change, a.deleteSchedule).Rehearses(),
		server.Post("/:name/run", change, a.runSchedule).Rehearses(),
		server.Get("/:name/history", see, a.scheduleHistory),
	)
}

func scheduleFieldsOf(s schedule.Schedule) scheduleFields {
	out := scheduleFields{
		Description: s.Description, Node: resource.OrNull(s.Node), Group: resource.OrNull(s.Group), Instance: resource.OrNull(s.Instance), Action: s.Action, Command: s.Command, Count: resource.OrNull(s.Count),
		Cron: s.Cron, Timezone: &s.Timezone, Warnings: *resource.List(s.Warnings), JitterSeconds: s.JitterSeconds, Overlap: &s.Overlap, Enabled: &s.Enabled,
	}
	if d := s.Drain; d != nil {
		out.Drain = &drainFields{&d.TimeoutSeconds, d.Shutdown, d.KickMessage, d.MoveStatic}
	}
	if b := s.Backup; b != nil {
		out.Backup = &backupFields{&b.Keep, *resource.List(b.Before), b.Until, *resource.List(b.After)}
	}
	return out
}

// given returns the schedule that the client describes.
func (f scheduleFields) given(name string) schedule.Schedule {
	out := schedule.Schedule{
		Name: name, Description: f.Description, Action: f.Action, Command: f.Command, Cron: f.Cron, Timezone: utc, Warnings: f.Warnings,
		JitterSeconds: f.JitterSeconds, Overlap: schedule.Skip, Enabled: true,
	}
	resource.Set(&out.Group, f.Group)
	resource.Set(&out.Instance, f.Instance)
	resource.Set(&out.Node, f.Node)
	if f.Drain == nil && out.Action == schedule.Drain {
		f.Drain = &drainFields{}
	}
	if d := f.Drain; d != nil {
		out.Drain = &schedule.DrainSettings{TimeoutSeconds: fleet.DefaultDrainSeconds, Shutdown: d.Shutdown, KickMessage: d.KickMessage, MoveStatic: d.MoveStatic}
		resource.Set(&out.Drain.TimeoutSeconds, d.Timeout)
	}
	if f.Backup == nil && out.Action == schedule.Backup {
		f.Backup = &backupFields{}
	}
	if b := f.Backup; b != nil {
		out.Backup = &schedule.BackupSettings{Keep: defaultKeep, Before: b.Before, Until: b.Until, After: b.After}
		resource.Set(&out.Backup.Keep, b.Keep)
	}
	resource.Set(&out.Timezone, f.Timezone)
	resource.Set(&out.Overlap, f.Overlap)
	resource.Set(&out.Enabled, f.Enabled)
	if out.Action == schedule.Start && out.Group != "" {
		out.Count = 1
	}
	resource.Set(&out.Count, f.Count)
	return out
}

func (a *API) scheduledOf(s *view.Snapshot, now time.Time) func(*schedule.Schedule) scheduled {
	return func(sched *schedule.Schedule) scheduled {
		st := scheduleops.StateOf(s, sched.Name)
		out := scheduled{Name: sched.Name, scheduleFields: scheduleFieldsOf(*sched), QueuedRun: resource.OrNull(st.Queued), UpdatedBy: sched.By, UpdatedAt: sched.At}
		out.NextRun = nextRun(sched, st, now)
		if st.Current != nil {
			shown := runOf(*st.Current)
			out.Running = &shown
		}
		if len(st.History) > 0 {
			shown := runOf(st.History[0])
			out.LastRun = &shown
		}
		return out
	}
}

// nextRun returns when the next action is due; nil if none is.
func nextRun(sched *schedule.Schedule, st schedule.State, now time.Time) *time.Time {
	times, err := cron.Parse(sched.Cron, sched.Timezone)
	if err != nil {
		return nil
	}
	at, ok := timetable.NextAction(sched, st, times, now)
	if !ok {
		return nil
	}
	return &at
}

func runOf(r schedule.Run) run {
	out := run{
		Number: r.Number, DueAt: resource.OrNull(r.Due), RequestedBy: resource.OrNull(r.By), StartedAt: r.Begun, EndedAt: resource.OrNull(r.Ended),
		Result: resource.OrNull(r.Result), Message: r.Message, Steps: make([]step, 0, len(r.Steps)),
	}
	for _, s := range r.Steps {
		shown := step{
			At: s.At, BeforeSeconds: s.BeforeSeconds, Action: s.Action, Command: s.Command, StartedAt: resource.OrNull(s.Begun), EndedAt: resource.OrNull(s.Ended),
			Message: s.Message, Instances: make([]stepInstance, 0, len(s.Targets)), Omitted: s.Omitted,
		}
		for _, t := range s.Targets {
			shown.Instances = append(shown.Instances, stepInstance{resource.OrNull(t.ID), t.Name, t.State, t.Message})
		}
		out.Steps = append(out.Steps, shown)
	}
	return out
}

func (a *API) listSchedules(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := make([]*schedule.Schedule, 0, s.Schedules.Len())
	for _, sched := range s.Schedules.All() {
		all = append(all, sched)
	}
	server.SendPage(c, all, resource.LargePage, a.scheduledOf(s, a.cfg.Operations.Now()))
}

// findSchedule returns the schedule that the path names. If ok is false, it answered the request.
func (a *API) findSchedule(c *gin.Context) (s *view.Snapshot, sched *schedule.Schedule, ok bool) {
	s = a.cfg.Operations.Snapshot()
	if sched, ok = s.Schedules.Get(c.Param("name")); !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no schedule with that name"))
	}
	return s, sched, ok
}

func (a *API) getSchedule(c *gin.Context) {
	if s, sched, ok := a.findSchedule(c); ok {
		resource.SendRecord(c, a.scheduledOf(s, a.cfg.Operations.Now())(sched), sched.ModRev, nil)
	}
}

func (a *API) scheduleHistory(c *gin.Context) {
	if s, sched, ok := a.findSchedule(c); ok {
		server.SendPage(c, scheduleops.StateOf(s, sched.Name).History, resource.SmallPage, runOf)
	}
}

func (a *API) putSchedule(c *gin.Context) {
	var b scheduleBody
	name, rev, ok := resource.BindRecord(c, "schedule", &b, func() *string { return b.Name })
	if !ok {
		return
	}
	a.writeSchedule(c, scheduleops.ScheduleWrite{Name: name, IfMatch: rev, Make: func(*schedule.Schedule) (schedule.Schedule, error) {
		out := b.given(name)
		return out, mayRun(c, out)
	}})
}

// patchSchedule applies a merge patch (RFC 7396): null restores a default.
func (a *API) patchSchedule(c *gin.Context) {
	var b scheduleBody
	name, rev, patch, ok := resource.BindPatch(c, "schedule", &b, func() *string { return b.Name }, scheduleFields{})
	if !ok {
		return
	}
	a.writeSchedule(c, scheduleops.ScheduleWrite{Name: name, Update: true, IfMatch: rev, Make: func(old *schedule.Schedule) (schedule.Schedule, error) {
		fields := scheduleFieldsOf(*old)
		if b.Action != "" && b.Action != old.Action {
			fields.Command, fields.Count, fields.Drain, fields.Backup = "", nil, nil, nil // those of the former action
		}
		now, err := resource.Patched(fields, patch)
		if err != nil {
			return schedule.Schedule{}, err
		}
		out := now.given(name)
		return out, mayRun(c, out)
	}})
}

func (a *API) writeSchedule(c *gin.Context, w scheduleops.ScheduleWrite) {
	w.DryRun = server.DryRun(c)
	done, err := a.cfg.Operations.WriteSchedule(c.Request.Context(), server.Actor(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if w.DryRun {
		var before schedule.Schedule
		if done.Before != nil {
			before = *done.Before
		}
		c.JSON(http.StatusOK, resource.DryRun("schedule", w.Name, done.Before != nil, resource.Differences(scheduleFieldsOf(before), scheduleFieldsOf(done.After))))
		return
	}
	shown := a.scheduledOf(a.cfg.Operations.Snapshot(), a.cfg.Operations.Now())(&done.After)
	resource.SendPut(c, done.Before == nil, done.After.ModRev, shown)
}

// mayRun returns Denied if the caller may not do what a schedule does.
func mayRun(c *gin.Context, s schedule.Schedule) error {
	needed := map[schedule.Action]auth.Permission{
		schedule.Command: auth.InstancesCommand, schedule.Start: auth.GroupsStart, schedule.Stop: auth.InstancesStop, schedule.Restart: auth.InstancesStop,
		schedule.Backup: auth.BackupsManage, schedule.Drain: auth.NodesDrain, schedule.Undrain: auth.NodesDrain,
	}
	all := []auth.Permission{needed[s.Action]}
	if len(s.Warnings) > 0 || s.Backup != nil && len(s.Backup.Before)+len(s.Backup.After) > 0 {
		all = append(all, auth.InstancesCommand)
	}
	for _, p := range all {
		if who, ok := server.Identity(c); ok && p != "" && !who.Can(p) {
			return errs.New(errs.Denied, "%s", who.Lacks(p))
		}
	}
	return nil
}

func (a *API) deleteSchedule(c *gin.Context) {
	resource.DeleteRecord(c, a.cfg.Operations.DeleteSchedule, gin.H{"dryRun": true, "action": "delete", "schedule": c.Param("name"), "diff": []resource.FieldChange{}})
}

// runSchedule begins a run now. The body is optional.
func (a *API) runSchedule(c *gin.Context) {
	var b struct {
		Warn bool `json:"warn"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	_, sched, ok := a.findSchedule(c)
	if !ok {
		return
	}
	if err := mayRun(c, *sched); err != nil {
		server.Fail(c, err)
		return
	}
	r := scheduleops.RunRequest{Name: sched.Name, Warn: b.Warn, DryRun: server.DryRun(c)}
	begun, err := a.cfg.Operations.RunSchedule(c.Request.Context(), server.Actor(c), r)
	switch {
	case err != nil:
		server.Fail(c, err)
	case r.DryRun:
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "run": runOf(begun)})
	default:
		c.JSON(http.StatusAccepted, runOf(begun))
	}
}
