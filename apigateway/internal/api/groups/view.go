package groups

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/groupfields"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/store/view"
)

// group is a group in an answer: the writable fields and its current state.
type group struct {
	Name fleet.GroupName `json:"name"`
	groupFields
	RunningInstances int           `json:"runningInstances"`
	TotalPlayers     int           `json:"totalPlayers"`
	RuntimeTarget    runtimeTarget `json:"runtimeTarget"`
	// Revision counts changes of the spec. The ETag counts changes of the record.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Paused is true while the crash loop guard holds back new instances.
	Paused    bool         `json:"paused"`
	CrashLoop *crashLoop   `json:"crashLoop"`
	Scaling   scalingState `json:"scaling"`
	// Held are the node resources that the group's instances hold now.
	Held budget `json:"held"`
	// Message explains the state. It is empty if there is nothing to explain.
	Message string `json:"message"`
}

type runtimeTarget struct {
	Platform        string `json:"platform"`
	PlatformVersion string `json:"platformVersion"`
	Family          string `json:"family"`
}

type crashLoop struct {
	Crashes     int       `json:"crashes"`
	Since       time.Time `json:"since"`
	PausedUntil time.Time `json:"pausedUntil"`
	Level       int       `json:"level"`
	// Revision is the revision of the group that crashed.
	Revision int64 `json:"revision"`
	// Suspect is the likely cause: revision or node. It is empty if the crashes do not show one.
	Suspect crashloop.Suspect `json:"suspect"`
	Node    fleet.NodeID      `json:"node"` // the suspected node
	Message string            `json:"message"`
}

func (a *API) groupFor(c *gin.Context, s *view.Snapshot, g *fleet.Group) group {
	return a.groupsFor(c, s)(g)
}

// groupsFor returns a function that shows groups to a caller. It shows the RCON password to callers
// with groups.update, the environment to callers with groups.env, and variables according to their
// visibility. It shows secrets to no one.
func (a *API) groupsFor(c *gin.Context, s *view.Snapshot) func(*fleet.Group) group {
	masked := maskedFor(c, s)
	return func(g *fleet.Group) group {
		shown := *g
		shown.Spec.Variables = masked(g)
		if !server.AllowedIn(c, g.Name, auth.GroupsUpdate) {
			shown.Spec.RCON = g.Spec.RCON.Hide()
		}
		out := groupOf(s, &shown, a.cfg.Operations.Now())
		if !server.AllowedIn(c, g.Name, auth.GroupsEnv) {
			out.Env = nil
		}
		return out
	}
}

// maskedFor returns a function that returns a group's variables with those masked that the caller
// must not see.
func maskedFor(c *gin.Context, s *view.Snapshot) func(*fleet.Group) map[string]string {
	most, definers := server.Shown(c), s.Definers()
	return func(g *fleet.Group) map[string]string {
		return compose.MaskValues(g.Spec.Variables, compose.Conceal(g, definers.Of(g.Name, s.Whole(g).Spec)), most)
	}
}

func groupOf(s *view.Snapshot, g *fleet.Group, now time.Time) group {
	out := group{
		Name: g.Name, groupFields: fieldsOf(g.Spec),
		RuntimeTarget: runtimeTarget{
			Platform: g.Spec.Software.Platform, PlatformVersion: g.Spec.Software.PlatformVersion, Family: family(g.Spec.Software.Platform),
		},
		Revision: g.Revision, CreatedAt: g.CreatedAt, UpdatedAt: g.UpdatedAt,
		Scaling: scalingOf(s, g, now),
	}
	var held fleet.Budget
	var unrunnable string
	for i := range s.GroupInstances(g.Name) {
		if i.State() == fleet.Online && !i.Intent.Warm {
			out.RunningInstances++
			out.TotalPlayers += instances.ReportOf(s, i).Players
		}
		if i.HoldsNode() {
			held = held.Add(fleet.BudgetOf(i.Occupies()))
		}
		if unrunnable == "" && i.Unrunnable() && i.Intent.GroupRevision == g.Revision {
			_, why := i.Why()
			unrunnable = fmt.Sprintf("%s is not restarted until the group changes: %s", i.Intent.Name, why)
		}
	}
	out.Held, out.Message = *budgetOf(held), joined(unmet(s, g), unrunnable, overdrawn(held, g.Spec.Quota))
	if loop, ok := s.CrashLoops.Get(g.Name); ok {
		ends := loop.EndsAt(g, compose.Ancestors(g, s.Groups.Get))
		out.Paused = now.Before(ends)
		out.CrashLoop = &crashLoop{
			Crashes: loop.Crashes, Since: loop.Since, PausedUntil: ends, Level: loop.Level, Revision: loop.GroupRevision,
			Suspect: loop.Blame.Suspect, Node: loop.Blame.Node, Message: loop.Blame.Because,
		}
		if out.Paused {
			out.CrashLoop.Message = loop.Text(ends)
			out.Message = joined(out.CrashLoop.Message, out.Message)
		}
	}
	return out
}

// maxUnmet bounds the groups that a message names.
const maxUnmet = 10

// unmet says which groups a group waits for, or "".
func unmet(s *view.Snapshot, g *fleet.Group) string {
	var names []string
	for _, name := range s.Unmet(g) {
		names = append(names, string(name))
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("it starts nothing while no instance runs of %s (dependsOn)", strings.Join(names[:min(len(names), maxUnmet)], ", "))
}

// joined joins the sentences that are not empty.
func joined(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), "; ")
}

// family is PROXY for platforms that route players, and SERVER for all others.
func family(platform string) string {
	if fleet.RoutesPlayers(platform) {
		return content.CategoryProxy
	}
	return content.CategoryServer
}

// fieldsOf returns all fields of a spec. Empty lists are [], not null.
func fieldsOf(s fleet.GroupSpec) groupFields {
	return groupFields{
		Platform: &s.Software.Platform, Command: &s.Command, Runtime: (*string)(&s.Runtime),
		ScalingMode: (*string)(&s.Scaling.Mode), MinInstances: &s.Scaling.Min,
		MemoryMb: &s.Resources.MemoryMiB, CPU: &s.Resources.CPU, CPUReservation: new(float64(s.Resources.CPU) / 100),
		PortRangeStart: &s.Ports.Start, PortRangeEnd: &s.Ports.End, AdditionalPorts: additionalPortsOf(s.AdditionalPorts),
		HostAddress: &s.HostAddress, Nodes: nodesOf(s.Where.Nodes), placementFields: placementOf(s),
		Templates: new(templateNames(s.Templates.AllOf)), TemplateInstallationConfig: installationOf(s.Templates),
		FileModifications: resource.List(s.FileModifications), Files: groupfields.FilesOf(s), Env: resource.ValuesOf(s.Env), VariableValues: resource.ValuesOf(s.Variables),
		InstanceGroups: resource.List(s.InstanceGroups), Static: &s.Static.Enabled, StopSignal: &s.Stop.Signal,
		Shared: groupfields.SharedOf(s), Process: groupfields.ProcessOf(s),
		MotdMode: &s.Motd.Mode, UpdateStrategy: &s.UpdateStrategy,
	}
}

// SpecFields returns the fields of a spec as decoded JSON.
func SpecFields(s fleet.GroupSpec) map[string]any { return resource.AsMap(fieldsOf(s)) }

func nodesOf(nodes []fleet.NodeID) *[]string {
	if len(nodes) == 0 {
		return &[]string{anyNode}
	}
	out := make([]string, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, string(n))
	}
	return &out
}

func additionalPortsOf(ports []fleet.NamedPort) *[]additionalPort {
	out := make([]additionalPort, 0, len(ports))
	for _, p := range ports {
		out = append(out, additionalPort{Name: p.Name, Protocol: p.Protocol, Start: &p.Range.Start, End: &p.Range.End})
	}
	return &out
}

func installationOf(t content.TemplateSelection) *installation {
	layers := func(in []content.TemplateLayer) []layer {
		out := make([]layer, 0, len(in))
		for _, l := range in {
			out = append(out, layer{Name: l.Name, Group: l.Group, Storage: cmp.Or(l.Storage, localStorage), Priority: l.Priority})
		}
		return out
	}
	return &installation{
		AllOf: layers(t.AllOf), AllInGroups: *resource.List(t.AllInGroups),
		OneOf: layers(t.OneOf), OneInGroups: *resource.List(t.OneInGroups), Override: &t.Override,
	}
}

// diff lists the fields in which two groups differ, sorted by name. Without before, it compares
// with the default spec. It hides passwords, shows variables as masked returns them, and shows the
// environment only if env is true.
func diff(before *fleet.Group, after fleet.Group, env bool, masked func(*fleet.Group) map[string]string) []resource.FieldChange {
	from := fleet.Group{Name: after.Name, Spec: fleet.DefaultSpec()}
	if before != nil {
		from = *before
	}
	all := resource.Differences(fieldsOf(from.Spec), fieldsOf(after.Spec))
	for n, change := range all {
		switch change.Field {
		case "rcon":
			all[n].From, all[n].To = groupfields.RCON(from.Spec.RCON.Hide()), groupfields.RCON(after.Spec.RCON.Hide())
		case "variableValues":
			all[n].From, all[n].To = resource.ValuesOf(masked(&from)), resource.ValuesOf(masked(&after))
		case "env":
			if !env {
				all[n].From, all[n].To = content.Hidden, content.Hidden
			}
		}
	}
	return all
}

// resolvedGroup is a group with the inherited fields, as its instances are created from it.
type resolvedGroup struct {
	group
	// Ancestors are the groups it inherits from, its parent first.
	Ancestors []fleet.GroupName `json:"ancestors"`
	// Sources are the groups that set the values, by field. A field that none of them sets is absent.
	Sources map[string]fleet.GroupName `json:"sources"`
}

// getResolved shows a group with the fields it inherits. Its ETag changes with the group and with
// every ancestor.
func (a *API) getResolved(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	rev, ancestors, names := g.ModRev, compose.Ancestors(g, s.Groups.Get), []fleet.GroupName{}
	for _, p := range ancestors {
		rev, names = max(rev, p.ModRev), append(names, p.Name)
	}
	out := resolvedGroup{group: a.groupFor(c, s, s.Whole(g)), Ancestors: names, Sources: compose.Sources(g, ancestors)}
	if !server.Allowed(c, auth.GroupsEnv) {
		maps.DeleteFunc(out.Sources, func(field string, _ fleet.GroupName) bool { return strings.HasPrefix(field, "env.") })
	}
	server.ETag(c, rev)
	c.JSON(http.StatusOK, out)
}
