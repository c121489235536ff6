package system

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// problem is something that is wrong now.
type problem struct {
	// Severity is critical if players are or will soon be affected, else warning.
	Severity string `json:"severity"`
	// Kind and Name are the object that has the problem.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Reason is a word for programs, Message a sentence for people, Fix what to do.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
	// Since is when it began; null if that is not known.
	Since *time.Time `json:"since"`
	// Count is how many instances are affected.
	Count int `json:"count"`
}

// The severities.
const (
	critical = "critical"
	warning  = "warning"
)

func (a *API) problemRoutes() []server.Route {
	return []server.Route{server.Get("/api/v1/problems", server.Needs(auth.GroupsView), a.problems).Among()}
}

// problems lists what is wrong now, the most urgent first. It omits the kinds of objects that the caller
// may not see.
func (a *API) problems(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := inSight(c, auth.GroupsView, slices.Concat(pausedGroups(s, a.cfg.Operations.Now()), waitingGroups(s)))
	if who, _ := server.Identity(c); who.Somewhere(auth.InstancesView) {
		all = append(all, inSight(c, auth.InstancesView, slices.Concat(waitingInstances(s), unrunnable(s), crashingGroups(s, a.cfg.Operations.Now())))...)
	}
	if server.Allowed(c, auth.NodesView) {
		all = append(all, a.nodeProblems(s)...)
	}
	if server.Allowed(c, auth.ClusterView) {
		all = append(all, missingServices(s)...)
	}
	if server.Allowed(c, auth.SystemSettings) {
		more, err := a.sealingProblems(c.Request.Context())
		if err != nil {
			server.Fail(c, err)
			return
		}
		all = slices.Concat(all, failingNotices(s), more)
	}
	if server.Allowed(c, auth.TemplatesView) {
		more, err := a.sourceProblems(c.Request.Context())
		if err != nil {
			server.Fail(c, err)
			return
		}
		all = append(all, more...)
	}
	slices.SortStableFunc(all, func(x, y problem) int {
		return cmp.Or(strings.Compare(x.Severity, y.Severity), earlier(x.Since, y.Since), strings.Compare(x.Kind, y.Kind), strings.Compare(x.Name, y.Name))
	})
	server.SendPage(c, all, resource.LargePage, func(p problem) problem { return p })
}

// inSight returns the problems of the groups in which the caller has a permission.
func inSight(c *gin.Context, p auth.Permission, ofGroups []problem) []problem {
	sees := server.Sight(c, p)
	return slices.DeleteFunc(ofGroups, func(p problem) bool { return sees != nil && !sees(fleet.GroupName(p.Name)) })
}

// earlier compares times; an unknown one is last.
func earlier(x, y *time.Time) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	}
	return x.Compare(*y)
}

// pausedGroups returns the groups that start nothing after repeated crashes.
func pausedGroups(s *view.Snapshot, now time.Time) (out []problem) {
	for name, loop := range s.CrashLoops.All() {
		g, ok := s.Groups.Get(name)
		if !ok || g.Deleting {
			continue
		}
		until := loop.EndsAt(g, compose.Ancestors(g, s.Groups.Get))
		if !until.After(now) {
			continue
		}
		out = append(out, problem{
			Severity: critical, Kind: "group", Name: string(name), Reason: string(fleet.ReasonCrashLoop), Message: loop.Text(until),
			Fix: "read the last lines of its crashes, and change the group or its template; or end the pause: orrery crash reset " + string(loop.Group), Since: &loop.PausedAt, Count: loop.Crashes,
		})
	}
	return out
}

// waitingGroups returns the groups that lack instances because a group that they depend on does not run.
func waitingGroups(s *view.Snapshot) (out []problem) {
	for name, g := range s.Groups.All() {
		unmet := s.Unmet(g)
		if g.Deleting || len(unmet) == 0 || s.Overlaid(g).Spec.Scaling.Mode == fleet.ScalingManual || s.MaintenanceOf(g).On {
			continue
		}
		missing := s.Target(g)
		for i := range s.GroupInstances(name) {
			if i.Living(g.Spec.KeepsLost()) {
				missing--
			}
		}
		if missing > 0 {
			out = append(out, problem{
				Severity: warning, Kind: "group", Name: string(name), Reason: string(fleet.ReasonDependencyMissing),
				Message: fmt.Sprintf("it starts nothing, because no instance of %v runs", unmet),
				Fix:     "start those groups, or remove them from dependsOn", Count: missing,
			})
		}
	}
	return out
}

// waitingInstances returns the instances that wait for a node, by group and reason.
func waitingInstances(s *view.Snapshot) (out []problem) {
	at := map[string]int{} // index in out by group and reason
	for _, i := range s.Instances.All() {
		p := i.Pending
		if p == nil || !i.NeedsPlacement() || p.Generation != i.Intent.Generation {
			continue
		}
		key := string(i.Intent.Group) + "/" + string(p.Reason)
		n, known := at[key]
		if !known {
			n = len(out)
			at[key] = n
			out = append(out, problem{
				Severity: critical, Kind: "group", Name: string(i.Intent.Group), Reason: string(p.Reason), Message: p.Message,
				Fix: "see what would help: orrery explain instance " + i.Intent.Name, Since: &p.At,
			})
		}
		out[n].Count++
		if p.At.Before(*out[n].Since) {
			out[n].Since = &p.At
		}
	}
	return out
}

// unrunnable returns the groups whose command does not exist or cannot be executed.
func unrunnable(s *view.Snapshot) (out []problem) {
	at := map[fleet.GroupName]int{}
	for _, i := range s.Instances.All() {
		if !i.Unrunnable() || i.Intent.ReplacedBy != "" {
			continue
		}
		n, known := at[i.Intent.Group]
		if !known {
			reason, message := i.Why()
			n = len(out)
			at[i.Intent.Group] = n
			out = append(out, problem{
				Severity: critical, Kind: "group", Name: string(i.Intent.Group), Reason: string(reason), Message: i.Intent.Name + ": " + message,
				Fix: "correct the group's command or its template: it is then tried again", Since: new(i.FinishedAt()),
			})
		}
		out[n].Count++
	}
	return out
}

// A group has a problem when it crashes this often within crashWindow. One crash is healed.
const (
	minCrashes  = 2
	crashWindow = 10 * time.Minute
)

// crashingGroups returns the groups that crash repeatedly and are started again, and not those that a crash loop
// pauses or that cannot run at all. Like the enforcer, it counts crashes of the group's current revision that no
// user has reset.
func crashingGroups(s *view.Snapshot, now time.Time) (out []problem) {
	for name, g := range s.Groups.All() {
		if loop, ok := s.CrashLoops.Get(name); g.Deleting || ok && loop.EndsAt(g, compose.Ancestors(g, s.Groups.Get)).After(now) {
			continue
		}
		from := now.Add(-crashWindow)
		if g.CrashesResetAt.After(from) {
			from = g.CrashesResetAt
		}
		var crashes []time.Time
		var last *fleet.Instance
		var lastAt time.Time
		runnable := true
		for i := range s.GroupInstances(name) {
			runnable = runnable && (!i.Unrunnable() || i.Intent.ReplacedBy != "")
			for _, at := range i.CrashesOf(g.Revision) {
				if at.After(from) {
					crashes = append(crashes, at)
				}
			}
			if at, ok := i.CrashedAt(); ok && i.Intent.GroupRevision == g.Revision && at.After(lastAt) {
				last, lastAt = i, at
			}
		}
		if !runnable || len(crashes) < minCrashes {
			continue
		}
		p := problem{
			Severity: warning, Kind: "group", Name: string(name), Reason: "Crashing", Since: new(slices.MinFunc(crashes, time.Time.Compare)), Count: len(crashes),
			Message: fmt.Sprintf("%d crashes in the last %d minutes", len(crashes), crashWindow/time.Minute), Fix: "read the last lines of its crashes: orrery get crashes --group " + string(name),
		}
		if lastAt.After(from) {
			_, why := last.Why()
			p.Message += "; the latest: " + last.Intent.Name + ": " + why
		}
		out = append(out, p)
	}
	return out
}

// nodeProblems returns the nodes that are lost or have stopped reporting.
func (a *API) nodeProblems(s *view.Snapshot) (out []problem) {
	show := a.cfg.Nodes.Viewer(s)
	for _, n := range s.Nodes.All() {
		shown := show(n)
		p := problem{Kind: "node", Name: string(n.ID), Since: shown.LastHeartbeat, Count: shown.InstanceCount}
		d, _ := s.NodesDesired.Get(n.ID)
		switch {
		case d != nil && d.Deleted:
			continue
		case shown.Status == "OFFLINE" && (n.Released || shown.InstanceCount == 0):
			p.Severity, p.Reason = warning, "NodeAway"
			p.Message, p.Fix = "it is not connected, and none of its instances runs", "start its agent, or delete the node"
		case shown.Status == "OFFLINE":
			p.Severity, p.Reason = critical, string(fleet.ReasonNodeLost)
			p.Message = fmt.Sprintf("it is lost with %d instances: its agent's session ended", shown.InstanceCount)
			p.Fix = "check the host and its agent; delete the node if it does not return"
		case shown.Status == "UNREACHABLE":
			p.Severity, p.Reason = warning, "ReportsOverdue"
			p.Message, p.Fix = "its agent is connected to etcd and sends no reports", "check the load of the host and the log of its agent"
		default:
			continue
		}
		out = append(out, p)
	}
	return out
}

// sourceProblems returns the template sources and declarations that failed or wait for a confirmation.
func (a *API) sourceProblems(ctx context.Context) (out []problem, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		sources, _, err := store.List(ctx, a.cfg.Operations.Store, keys.TemplateSourceStatuses())
		if err != nil {
			return err
		}
		for _, st := range sources {
			p := problem{Severity: warning, Kind: "template-source", Name: st.Name, Reason: string(st.State), Message: st.Message, Since: &st.At}
			switch st.State {
			case content.SourceFailed:
				p.Fix = "correct the source or its settings; it is read again by itself"
			case content.SourceHeld:
				p.Fix = "confirm the removals, or restore what the source no longer has"
			default:
				continue
			}
			out = append(out, p)
		}
		for _, prefix := range []keys.Prefix[compose.DeclaredStatus]{keys.DeclaredStatuses(), keys.DeclaredCatalogStatuses()} {
			declared, _, err := store.List(ctx, a.cfg.Operations.Store, prefix)
			if err != nil {
				return err
			}
			for _, st := range declared {
				if st.State == compose.DeclaredFailed {
					out = append(out, problem{
						Severity: warning, Kind: "declaration", Name: st.Source + "/" + st.Name(), Reason: string(st.State), Message: st.Message,
						Fix: "correct the file in the source",
					})
				}
			}
		}
		return nil
	})
	return out, err
}

// failingFrom is how many attempts in a row must fail before a notice is a problem.
const failingFrom = 3

// failingNotices returns the notices whose target does not accept them.
func failingNotices(s *view.Snapshot) (out []problem) {
	for name, st := range s.NoticeStates.All() {
		if n, ok := s.Notices.Get(name); !ok || !n.Enabled || st.Failures < failingFrom {
			continue
		}
		out = append(out, problem{
			Severity: warning, Kind: "notice", Name: name, Reason: "NoticeFailing", Message: fmt.Sprintf("%d attempts in a row failed: %s", st.Failures, st.LastError),
			Fix: "correct the URL and try it (orrery notice test " + name + "), or turn the notice off", Since: &st.FailingSince,
		})
	}
	return out
}

// missingServices returns the services of which no replica runs.
func missingServices(s *view.Snapshot) (out []problem) {
	for service, lacks := range map[string]string{
		"enforcer": "no instance is healed, started by a minimum or stopped", "scheduler": "no instance gets a node",
		"templatesvc": "nodes cannot fetch template files that they do not have yet",
	} {
		if len(s.ServiceSessions(service)) == 0 {
			out = append(out, problem{
				Severity: critical, Kind: "service", Name: service, Reason: "ServiceMissing", Message: "no replica runs: " + lacks, Fix: "start " + service,
			})
		}
	}
	return out
}
