package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/composing"
	"github.com/orreryhq/orrery/apigateway/internal/running"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// group is a group as it is read: everything that can be written, and how it fares.
type group struct {
	Name fleet.GroupName `json:"name"`
	groupFields
	RunningInstances int           `json:"runningInstances"`
	TotalPlayers     int           `json:"totalPlayers"`
	RuntimeTarget    runtimeTarget `json:"runtimeTarget"`
	// Revision counts changes of the spec; the ETag, changes of the record.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Paused is true while nothing is started because the group crashed too often.
	Paused    bool       `json:"paused"`
	CrashLoop *crashLoop `json:"crashLoop"`
	// Held is what the group's instances hold of nodes now.
	Held budget `json:"held"`
	// Message says what there is to say about that; empty when there is nothing.
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
	// Revision is the group's that crashed.
	Revision int64 `json:"revision"`
	// Suspect is revision or node, the likely fault; empty when the crashes do not tell.
	Suspect fleet.Suspect `json:"suspect"`
	Node    fleet.NodeID  `json:"node"` // the suspect
	Message string        `json:"message"`
}

// groupFor shows a group to a caller; see groupsFor.
func (a *API) groupFor(c *gin.Context, s *view.Snapshot, g *fleet.Group) group {
	return a.groupsFor(c, s)(g)
}

// groupsFor shows groups to a caller: their passwords to whoever may set them, their
// environment to whoever has groups.env, and of their values those that are for them. Secrets
// are shown to nobody.
func (a *API) groupsFor(c *gin.Context, s *view.Snapshot) func(*fleet.Group) group {
	masked := maskedFor(c, s)
	return func(g *fleet.Group) group {
		shown := *g
		shown.Spec.Variables = masked(g)
		if !server.Allowed(c, auth.GroupsUpdate) {
			shown.Spec.RCON = g.Spec.RCON.Hide()
		}
		out := groupOf(s, &shown, a.cfg.Now())
		if !server.Allowed(c, auth.GroupsEnv) {
			out.Env = nil
		}
		return out
	}
}

// maskedFor are groups' values as a caller is shown them.
func maskedFor(c *gin.Context, s *view.Snapshot) func(*fleet.Group) map[string]string {
	most, definers := server.Shown(c), s.Definers()
	return func(g *fleet.Group) map[string]string {
		return fleet.MaskValues(g.Spec.Variables, g.Conceal(definers.Of(g.Name, s.Whole(g).Spec)), most)
	}
}

// groupOf shows a group as a snapshot has it.
func groupOf(s *view.Snapshot, g *fleet.Group, now time.Time) group {
	out := group{
		Name: g.Name, groupFields: fieldsOf(g.Spec),
		RuntimeTarget: runtimeTarget{
			Platform: g.Spec.Software.Platform, PlatformVersion: g.Spec.Software.PlatformVersion, Family: family(g.Spec.Software.Platform),
		},
		Revision: g.Revision, CreatedAt: g.CreatedAt, UpdatedAt: g.UpdatedAt,
	}
	var held fleet.Budget
	var unrunnable string
	for i := range s.GroupInstances(g.Name) {
		if i.State() == fleet.Online {
			out.RunningInstances++
			out.TotalPlayers += reported(s, i).Players
		}
		if i.HoldsNode() {
			held = held.Add(fleet.BudgetOf(i.Placement.Resources))
		}
		if unrunnable == "" && i.Unrunnable() && i.Intent.GroupRevision == g.Revision {
			_, why := i.Why()
			unrunnable = fmt.Sprintf("%s is not started again until the group changes: %s", i.Intent.Name, why)
		}
	}
	out.Held, out.Message = *budgetOf(held), joined(unrunnable, overdrawn(held, g.Spec.Quota))
	if loop, ok := s.CrashLoops.Get(g.Name); ok {
		ends := loop.EndsAt(g, fleet.Ancestors(g, s.Groups.Get))
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

// joined are sentences as one text, without the empty ones.
func joined(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), "; ")
}

// family is PROXY for the platforms that route players, else SERVER.
func family(platform string) string {
	if fleet.RoutesPlayers(platform) {
		return fleet.CategoryProxy
	}
	return fleet.CategoryServer
}

// fieldsOf shows a spec: every field, empty lists as [].
func fieldsOf(s fleet.GroupSpec) groupFields {
	return groupFields{
		Parent: &s.Parent, Platform: &s.Software.Platform, PlatformVersion: &s.Software.PlatformVersion,
		JarFile: &s.Software.JarFile, JVMArgs: list(s.Software.JVMArgs), Command: &s.Command, Runtime: (*string)(&s.Runtime),
		ScalingMode: (*string)(&s.Scaling.Mode), MinInstances: &s.Scaling.Min, MaxInstances: &s.Scaling.Max,
		ScaleUpThreshold: &s.Scaling.UpThreshold, ScaleDownAfterSeconds: &s.Scaling.DownAfterSeconds,
		ScaleCooldownSeconds: &s.Scaling.CooldownSeconds, WarmPoolMinPrepared: &s.Scaling.WarmPoolMinimum,
		MaxPlayers: &s.Players.Max, FallbackGroup: &s.Players.FallbackGroup, DefaultGroup: &s.Players.DefaultGroup,
		BedrockProxyGroup: &s.Players.BedrockProxyGroup,
		MemoryMb:          &s.Resources.MemoryMiB, CPU: &s.Resources.CPU, CPUReservation: new(float64(s.Resources.CPU) / 100),
		CPULimit: &s.CPULimit, DiskReservationMb: &s.Resources.DiskMiB,
		PortRangeStart: &s.Ports.Start, PortRangeEnd: &s.Ports.End, AdditionalPorts: additionalPortsOf(s.AdditionalPorts),
		HostAddress: &s.HostAddress, Nodes: nodesOf(s.Where.Nodes),
		NodeAffinity: list(s.Where.Affinity), NodeAntiAffinity: list(s.Where.AntiAffinity), SpreadConstraint: &s.Where.Spread,
		placingFields: placingOf(s),
		Templates:     new(templateNames(s.Templates.AllOf)), TemplateInstallationConfig: installationOf(s.Templates),
		FileModifications: list(s.FileModifications), Files: composing.Of(s), Env: valuesOf(s.Env), VariableValues: valuesOf(s.Variables),
		InstanceGroups: list(s.InstanceGroups),
		Static:         &s.Static.Enabled, StaticInstanceNames: list(s.Static.InstanceNames), ProtectedPaths: list(s.Static.ProtectedPaths),
		StopCommand: &s.Stop.Command, ShutdownGraceSeconds: &s.Stop.GraceSeconds, StopSignal: &s.Stop.Signal,
		Fields:  running.Of(s),
		OnCrash: (*string)(&s.OnCrash), OnNodeLoss: (*string)(&s.OnNodeLoss), OnNodeReturn: (*string)(&s.OnNodeReturn),
		Maintenance: &s.Maintenance.On, MaintenanceMessage: &s.Maintenance.Message, MaintenanceBypass: list(s.Maintenance.Bypass),
		Motds: list(s.Motd.Lines), MotdMode: &s.Motd.Mode, MotdIntervalSeconds: &s.Motd.IntervalSeconds,
		DependsOn: list(s.DependsOn), StartupWeight: &s.StartupWeight, Priority: &s.Priority, UpdateStrategy: &s.UpdateStrategy,
		AttachedModules: list(s.Composition.AttachedModules), EnabledModules: list(s.Composition.EnabledModules),
		DisabledModules: list(s.Composition.DisabledModules), AttachedExtensions: list(s.Composition.AttachedExtensions),
		EnabledExtensions: list(s.Composition.EnabledExtensions), DisabledExtensions: list(s.Composition.DisabledExtensions),
		ConfigPatches: patchesOf(s.Composition.ConfigPatches),
	}
}

func list[T any](in []T) *[]T {
	out := append([]T{}, in...)
	return &out
}

func valuesOf(m map[string]string) *values {
	out := values{}
	for k, v := range m {
		out[k] = &v
	}
	return &out
}

func patchesOf(m map[string]map[string]json.RawMessage) *map[string]map[string]json.RawMessage {
	if m == nil {
		m = map[string]map[string]json.RawMessage{}
	}
	return &m
}

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

func installationOf(t fleet.TemplateSelection) *installation {
	layers := func(in []fleet.TemplateLayer) []layer {
		out := make([]layer, 0, len(in))
		for _, l := range in {
			out = append(out, layer{Name: l.Name, Group: l.Group, Storage: cmp.Or(l.Storage, localStorage), Priority: l.Priority})
		}
		return out
	}
	return &installation{
		AllOf: layers(t.AllOf), AllInGroups: *list(t.AllInGroups),
		OneOf: layers(t.OneOf), OneInGroups: *list(t.OneInGroups), Override: &t.Override,
	}
}

// fieldChange is one field's change.
type fieldChange struct {
	Field string `json:"field"`
	From  any    `json:"from"`
	To    any    `json:"to"`
}

// diff lists the fields in which two specs differ, in order of name. Without a
// before, everything that is not the default counts. A difference shows passwords to nobody,
// values as masked has them, and the environment only where env is true.
func diff(before *fleet.Group, after fleet.Group, env bool, masked func(*fleet.Group) map[string]string) []fieldChange {
	from := fleet.Group{Name: after.Name, Spec: fleet.DefaultSpec()}
	if before != nil {
		from = *before
	}
	all := differences(fieldsOf(from.Spec), fieldsOf(after.Spec))
	for n, change := range all {
		switch change.Field {
		case "rcon":
			all[n].From, all[n].To = running.RCON(from.Spec.RCON.Hide()), running.RCON(after.Spec.RCON.Hide())
		case "variableValues":
			all[n].From, all[n].To = valuesOf(masked(&from)), valuesOf(masked(&after))
		case "env":
			if !env {
				all[n].From, all[n].To = fleet.Hidden, fleet.Hidden
			}
		}
	}
	return all
}

// differences lists the fields in which two views differ, in order of name.
func differences(from, to any) []fieldChange {
	a, b := asMap(from), asMap(to)
	out := []fieldChange{}
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if !equalJSON(a[k], b[k]) {
			out = append(out, fieldChange{Field: k, From: a[k], To: b[k]})
		}
	}
	return out
}

func equalJSON(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
