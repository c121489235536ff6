package events_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store/view"
)

var (
	at   = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	seen = at.Add(time.Minute)
)

// in returns lobby-1 in a state, on node n1 if the state requires a node.
func in(s fleet.State, edit ...func(*fleet.Instance)) *fleet.Instance {
	i := &fleet.Instance{Intent: fleet.Intent{
		ID: "abc123", Name: "lobby-1", Group: "lobby", Generation: 1, Desired: fleet.DesiredRunning,
	}}
	if s != fleet.Unplaced {
		i.Placement = &fleet.Placement{Instance: "abc123", Node: "n1", Generation: 1, Port: 25565}
		i.Status = &fleet.Status{Instance: "abc123", Generation: 1, State: s, Reason: fleet.ReasonReady}
	}
	for _, e := range edit {
		e(i)
	}
	return i
}

func exited(reason fleet.Reason, exit *fleet.Exit) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		i.Status.Reason, i.Status.Exit = reason, exit
		i.Status.StartedAt, i.Status.FinishedAt = at, at.Add(1500*time.Millisecond)
	}
}

func told(before, after *fleet.Instance) view.Change {
	return view.Change{Kind: view.KindStatus, Rev: 7, Key: []string{"abc123"}, InstanceBefore: before, Instance: after}
}

func group(on, deleting bool) *fleet.Group {
	return &fleet.Group{Name: "lobby", Deleting: deleting, Spec: fleet.GroupSpec{Maintenance: fleet.Maintenance{On: on, Message: "back soon"}}}
}

// stateChange is a change of the runs of the schedule nightly.
func stateChange(before, after schedule.State) view.Change {
	return view.Change{Kind: view.KindScheduleState, Rev: 7, Key: []string{"nightly"}, Before: &before, After: &after}
}

func overlayChange(before, after schedule.Active) view.Change {
	return view.Change{Kind: view.KindActiveOverlay, Rev: 7, Key: []string{"cluster"}, Before: &before, After: &after}
}

// overlaid has the overlay evening of a revision, active for groups.
func overlaid(revision int64, groups ...fleet.GroupName) schedule.Active {
	return schedule.Active{Overlays: []schedule.ActiveOverlay{{Name: "evening", Revision: revision, On: true, Begun: seen, Until: at, Groups: groups}}}
}

func groupChange(before, after *fleet.Group) view.Change {
	c := view.Change{Kind: view.KindGroup, Rev: 7, Key: []string{"lobby"}}
	if before != nil {
		c.Before = before
	}
	if after != nil {
		c.After = after
	}
	return c
}

func audited(action, kind, name string) view.Change {
	return view.Change{Kind: view.KindAudit, Rev: 7, Key: []string{"ulid"}, After: &account.AuditSlip{
		AuditMark: account.AuditMark{Action: action, ResourceType: kind, ResourceID: name, Username: "ann"},
	}}
}

type line struct {
	ID     string
	Type   events.Type
	Group  fleet.GroupName
	Fields events.Fields
}

func lines(es []events.Event) []line {
	var out []line
	for _, e := range es {
		l := line{Type: e.Type, Group: e.Group, Fields: e.Fields}
		if !e.Live() {
			l.ID = e.At.String()
		}
		out = append(out, l)
	}
	return out
}

func lobby(id string, typ events.Type, f events.Fields) line {
	f["instanceId"], f["uid"], f["group"] = "lobby-1", fleet.InstanceID("abc123"), fleet.GroupName("lobby")
	if _, ok := f["nodeId"]; !ok {
		f["nodeId"] = fleet.NodeID("n1")
	}
	return line{id, typ, "lobby", f}
}

func changed(id string, from any, to, reason, message string) line {
	return lobby(id, events.InstanceStateChanged, events.Fields{"oldState": from, "newState": to, "reason": reason, "message": message})
}

func total(id string, running, players int) line {
	return line{id, events.GroupAggregatesUpdated, "lobby", events.Fields{
		"groupName": fleet.GroupName("lobby"), "runningInstances": running, "totalPlayers": players,
	}}
}

func failedStart(id string, class reports.CrashCategory, reason fleet.Reason) line {
	return lobby(id, events.InstanceCrashed, events.Fields{
		"crashId": nil, "exitCode": nil, "classification": class, "causeSummary": reason.Text(), "signature": "", "logTail": []string{},
		"uptimeMs": int64(0), "reason": reason, "message": reason.Text(),
	})
}

func recorded(id string, code any, class reports.CrashCategory) line {
	return lobby(id, events.InstanceCrashed, events.Fields{
		"crashId": "abc123-1-1", "exitCode": code, "classification": class, "causeSummary": "panic: x", "signature": "0123456789abcdef",
		"logTail": []string{"starting", "panic: x"}, "uptimeMs": int64(1500), "reason": fleet.ReasonExited, "message": fleet.ReasonExited.Text(),
	})
}

func recordOf(exit *fleet.Exit, class reports.CrashCategory) view.Change {
	return view.Change{Kind: view.KindCrash, Rev: 7, Key: []string{"abc123-1-1"}, After: &reports.Crash{
		ID: "abc123-1-1", Instance: "abc123", Name: "lobby-1", Group: "lobby", Node: "n1", Generation: 1, Reason: fleet.ReasonExited,
		Exit: exit, Category: class, Cause: "panic: x", Fingerprint: "0123456789abcdef", Last: []string{"starting", "panic: x"}, StartedAt: at, At: at.Add(1500 * time.Millisecond),
	}}
}

func again(i *fleet.Instance) { i.Status.Restarts++ }

func because(r fleet.Reason) func(*fleet.Instance) {
	return func(i *fleet.Instance) { i.Status.Reason = r }
}

func neverStarted(i *fleet.Instance) { i.Status.StartedAt = time.Time{} }

func TestTranslate(t *testing.T) {
	ready := fleet.ReasonReady.Text()
	name := fleet.GroupName("lobby")
	for _, tc := range []struct {
		name    string
		changes []view.Change
		want    []line
	}{
		{
			"a new group is created",
			[]view.Change{groupChange(nil, group(false, false))},
			[]line{{"7", events.GroupCreated, "lobby", events.Fields{"groupName": name}}},
		},
		{
			"a changed group is updated",
			[]view.Change{groupChange(group(false, false), group(false, false))},
			[]line{{"7", events.GroupUpdated, "lobby", events.Fields{"groupName": name}}},
		},
		{
			"a network is created",
			[]view.Change{{Kind: view.KindNetwork, Rev: 7, Key: []string{"main"}, After: &players.Network{}}},
			[]line{{"7", events.NetworkCreated, "", events.Fields{"networkName": "main"}}},
		},
		{
			"a network is updated",
			[]view.Change{{Kind: view.KindNetwork, Rev: 7, Key: []string{"main"}, Before: &players.Network{}, After: &players.Network{}}},
			[]line{{"7", events.NetworkUpdated, "", events.Fields{"networkName": "main"}}},
		},
		{
			"a network is deleted",
			[]view.Change{{Kind: view.KindNetwork, Rev: 7, Key: []string{"main"}, Before: &players.Network{}}},
			[]line{{"7", events.NetworkDeleted, "", events.Fields{"networkName": "main"}}},
		},
		{
			"another version of the settings holds",
			[]view.Change{{Kind: view.KindConfigActive, Rev: 7, Key: []string{"cluster"}, After: &cluster.ConfigActive{Version: 2, Before: 3, By: "ann", Action: cluster.ConfigRolledBack}}},
			[]line{{"7", events.ClusterConfigChanged, "", events.Fields{"version": int64(2), "parentVersion": int64(3), "mutator": "ann", "action": "ROLLBACK"}}},
		},
		{
			"maintenance is told beside the update, and both are numbered",
			[]view.Change{groupChange(group(false, false), group(true, false))},
			[]line{
				{"7-1", events.GroupUpdated, "lobby", events.Fields{"groupName": name}},
				{"7-2", events.GroupMaintenanceChanged, "lobby", events.Fields{"groupName": name, "maintenance": true, "message": "back soon"}},
			},
		},
		{
			"a group is deleted when it is marked",
			[]view.Change{groupChange(group(false, false), group(false, true))},
			[]line{{"7", events.GroupDeleted, "lobby", events.Fields{"groupName": name}}},
		},
		{"and not again when its key goes", []view.Change{groupChange(group(false, true), nil)}, nil},
		{
			"a group whose key goes unmarked is deleted",
			[]view.Change{groupChange(group(false, false), nil)},
			[]line{{"7", events.GroupDeleted, "lobby", events.Fields{"groupName": name}}},
		},

		{
			"a new instance has no old state",
			[]view.Change{told(nil, in(fleet.Unplaced))},
			[]line{lobby("7", events.InstanceStateChanged, events.Fields{
				"oldState": nil, "newState": "SCHEDULED", "nodeId": fleet.NodeID(""),
				"reason": "Unscheduled", "message": fleet.ReasonUnscheduled.Text(),
			})},
		},
		{"a status that keeps the state is nothing", []view.Change{told(in(fleet.Starting), in(fleet.Starting))}, nil},
		{
			"an instance that becomes ready moves its group's totals",
			[]view.Change{told(in(fleet.Starting), in(fleet.Online))},
			[]line{changed("7-1", "STARTING", "RUNNING", "Ready", ready), total("7-2", 1, 0)},
		},
		{"several records of one transaction are one change", []view.Change{
			told(nil, in(fleet.Unplaced)), told(in(fleet.Unplaced), in(fleet.Preparing)),
		}, []line{changed("7", nil, "PREPARING", "Ready", ready)}},
		{
			"a lost node is a crash in v1 words only",
			[]view.Change{told(in(fleet.Starting), in(fleet.Offline, exited(fleet.ReasonNodeLost, nil)))},
			[]line{changed("7", "STARTING", "CRASHED", "NODE_LOST", fleet.ReasonNodeLost.Text())},
		},
		{
			"a crash is told when it was recorded",
			[]view.Change{recordOf(&fleet.Exit{Code: 139, Known: true}, reports.CrashSegfault)},
			[]line{recorded("7", 139, reports.CrashSegfault)},
		},
		{"one that nobody saw has no code", []view.Change{recordOf(&fleet.Exit{}, reports.CrashUnknown)}, []line{recorded("7", nil, reports.CrashUnknown)}},
		{"an end with code 0 is no crash to clients", []view.Change{recordOf(&fleet.Exit{Known: true}, reports.CrashClean)}, nil},
		{"a removed record of a crash is nothing", []view.Change{{Kind: view.KindCrash, Rev: 7, Key: []string{"a"}, Before: &reports.Crash{}}}, nil},
		{"a status of a process that crashed is not told twice", []view.Change{
			told(in(fleet.Starting), in(fleet.Crashed, exited(fleet.ReasonExited, &fleet.Exit{Code: 1, Known: true}))),
		}, []line{changed("7", "STARTING", "CRASHED", "Exited", fleet.ReasonExited.Text())}},
		{"a start that failed without a process is a crash too", []view.Change{
			told(in(fleet.Preparing), in(fleet.Failed, exited(fleet.ReasonPortTaken, nil), neverStarted)),
		}, []line{changed("7-1", "PREPARING", "CRASHED", "PortTaken", fleet.ReasonPortTaken.Text()), failedStart("7-2", reports.CrashPortBind, fleet.ReasonPortTaken)}},
		{"a crash is told once", []view.Change{told(in(fleet.Crashed), in(fleet.Crashed))}, nil},
		{"a removed record is told", []view.Change{told(in(fleet.Stopped), nil)}, []line{lobby("7", events.InstanceRemoved, events.Fields{})}},
		{"records without an intent are nothing", []view.Change{told(nil, nil)}, nil},

		{
			"a node's session is its connection",
			[]view.Change{{
				Kind: view.KindSession, Rev: 7, Key: []string{"node", "n1"},
				After: &fleet.NodeSession{Rev: record.Rev{CreateRev: 7}, StartedAt: at},
			}},
			[]line{{"7", events.NodeConnected, "", events.Fields{"nodeId": "n1", "sessionId": "7", "timestamp": at}}},
		},
		{
			"and its end the disconnection",
			[]view.Change{{
				Kind: view.KindSession, Rev: 7, Key: []string{"node", "n1"},
				Before: &fleet.NodeSession{Rev: record.Rev{CreateRev: 3}},
			}},
			[]line{{"7", events.NodeDisconnected, "", events.Fields{"nodeId": "n1", "sessionId": "3", "reason": "SESSION_ENDED", "timestamp": seen}}},
		},
		{"sessions of services are nothing", []view.Change{{Kind: view.KindSession, Rev: 7, Key: []string{"enforcer", "a"}, After: &cluster.Session{}}}, nil},
		{
			"a cordon",
			[]view.Change{{Kind: view.KindNodeDesired, Rev: 7, Key: []string{"n1"}, After: &fleet.NodeDesired{Cordoned: true, By: "ann", At: at}}},
			[]line{{"7", events.NodeCordonChanged, "", events.Fields{"nodeId": "n1", "cordoned": true, "by": "ann", "timestamp": at}}},
		},
		{
			"a drain",
			[]view.Change{{
				Kind: view.KindNodeDesired, Rev: 7, Key: []string{"n1"}, Before: &fleet.NodeDesired{Cordoned: true, By: "ann", At: at},
				After: &fleet.NodeDesired{Cordoned: true, Drain: &fleet.NodeDrain{ID: "d", At: at, TimeoutSeconds: 60, Shutdown: true, KickMessage: "bye"}},
			}},
			[]line{{"7", events.NodeDrainRequested, "", events.Fields{"nodeId": "n1", "shutdownAfterDrain": true, "drainTimeoutSeconds": 60, "kickMessage": "bye", "moveStatic": false, "timestamp": at}}},
		},
		{
			"another change of a draining node",
			[]view.Change{{
				Kind: view.KindNodeDesired, Rev: 7, Key: []string{"n1"}, Before: &fleet.NodeDesired{Cordoned: true, Drain: &fleet.NodeDrain{ID: "d", At: at}},
				After: &fleet.NodeDesired{Cordoned: true, Drain: &fleet.NodeDrain{ID: "d", At: at}, Labels: map[string]string{"a": "b"}},
			}},
			nil,
		},
		{
			"the end of a drain",
			[]view.Change{{
				Kind: view.KindNodeDesired, Rev: 7, Key: []string{"n1"}, Before: &fleet.NodeDesired{Cordoned: true, Drain: &fleet.NodeDrain{ID: "d", At: at}},
				After: &fleet.NodeDesired{Cordoned: true, Drain: &fleet.NodeDrain{ID: "d", At: at, CompletedAt: seen}},
			}},
			[]line{{"7", events.NodeDrainCompleted, "", events.Fields{"nodeId": "n1", "timestamp": seen}}},
		},

		{
			"a template's new version",
			[]view.Change{{
				Kind: view.KindTemplateHead, Rev: 7, Key: []string{"default", "server"},
				Before: &content.TemplateHead{Digest: "aa"}, After: &content.TemplateHead{Digest: "bb"},
			}},
			[]line{{"7", events.TemplateUpdated, "", events.Fields{"templateName": "server", "oldHash": "aa", "newHash": "bb"}}},
		},
		{"a template head that is merely rewritten", []view.Change{{
			Kind: view.KindTemplateHead, Rev: 7, Key: []string{"default", "server"},
			Before: &content.TemplateHead{Digest: "aa"}, After: &content.TemplateHead{Digest: "aa"},
		}}, nil},
		{
			"a crash loop",
			[]view.Change{{
				Kind: view.KindCrashLoop, Rev: 7, Key: []string{"lobby"},
				After: &crashloop.Loop{
					Group: "lobby", Crashes: 3, Since: at, PausedUntil: seen,
					Blame: crashloop.Blame{Suspect: reports.SuspectNode, Node: "n1", Because: "because"},
				},
			}},
			[]line{{"7", events.GroupCrashLoop, "lobby", events.Fields{
				"group": "lobby", "crashCount": 3, "windowStart": at, "pausedUntil": seen,
				"suspect": reports.SuspectNode, "suspectNode": fleet.NodeID("n1"),
				"message": (&crashloop.Loop{Group: "lobby", Crashes: 3, Since: at, Blame: crashloop.Blame{Because: "because"}}).Text(seen),
			}}},
		},
		{
			"more instances because of the load",
			[]view.Change{{
				Kind: view.KindScaling, Rev: 7, Key: []string{"lobby"},
				After: &scaling.Decision{Group: "lobby", Target: 3, From: 1, To: 3, At: at, Reason: fleet.ReasonFullness, Message: "because", Policy: "evening"},
			}},
			[]line{{"7", events.GroupScaled, "lobby", events.Fields{
				"group": "lobby", "from": 1, "to": 3, "reason": fleet.ReasonFullness, "message": "because", "policy": "evening", "timestamp": at,
			}}},
		},
		{
			"a warm instance becomes an ordinary one",
			[]view.Change{told(in(fleet.Preparing, func(i *fleet.Instance) { i.Intent.Warm = true }), in(fleet.Preparing))},
			[]line{lobby("7", events.InstanceWarmChanged, events.Fields{"warm": false})},
		},
		{"the end of automatic scaling", []view.Change{{Kind: view.KindScaling, Rev: 7, Key: []string{"lobby"}, Before: &scaling.Decision{}}}, nil},
		{"the end of a crash loop", []view.Change{{Kind: view.KindCrashLoop, Rev: 7, Key: []string{"lobby"}, Before: &crashloop.Loop{}}}, nil},

		{
			"a run of a schedule begins, and then ends",
			[]view.Change{
				stateChange(schedule.State{}, schedule.State{Current: &schedule.Run{Number: 2, Group: "lobby", At: at}}),
				stateChange(schedule.State{Current: &schedule.Run{Number: 2, Group: "lobby", At: at}},
					schedule.State{History: []schedule.Run{{Number: 2, Group: "lobby", At: at, Result: schedule.Failed, Message: "no"}}}),
			},
			[]line{
				{"7-1", events.ScheduleRunStarted, "lobby", events.Fields{"schedule": "nightly", "run": int64(2), "group": name, "instance": "", "actionAt": at}},
				{"7-2", events.ScheduleRunEnded, "lobby", events.Fields{"schedule": "nightly", "run": int64(2), "group": name, "instance": "", "actionAt": at, "result": schedule.Failed, "message": "no"}},
			},
		},
		{
			"an overlay of two groups begins, and loses one of them",
			[]view.Change{
				overlayChange(schedule.Active{}, overlaid(1, "lobby", "game")),
				overlayChange(overlaid(1, "lobby", "game"), overlaid(2, "lobby")),
				overlayChange(overlaid(2, "lobby"), schedule.Active{}),
			},
			[]line{
				{"7-1", events.OverlayActivated, "lobby", events.Fields{"eventName": "evening", "group": name, "activeUntil": at}},
				{"7-2", events.OverlayActivated, "game", events.Fields{"eventName": "evening", "group": fleet.GroupName("game"), "activeUntil": at}},
				{"7-3", events.OverlayDeactivated, "game", events.Fields{"eventName": "evening", "group": fleet.GroupName("game"), "reason": "changed"}},
				{"7-4", events.OverlayDeactivated, "lobby", events.Fields{"eventName": "evening", "group": name, "reason": "removed"}},
			},
		},
		{
			"the maintenance of all groups",
			[]view.Change{{
				Kind: view.KindMaintenance, Rev: 7, Key: []string{"cluster"},
				After: &cluster.Maintenance{Maintenance: fleet.Maintenance{On: true, Message: "back soon"}},
			}},
			[]line{{"7", events.MaintenanceUpdated, "", events.Fields{"globalEnabled": true, "message": "back soon"}}},
		},

		{"a new deployment", []view.Change{{
			Kind: view.KindDeployment, Rev: 7, Key: []string{"lobby", "000000000002"},
			After: &deployment.Deployment{Group: "lobby", Number: 2, Strategy: deployment.Canary, Trigger: deployment.TriggerManual, By: "ann"},
		}}, []line{{"7", events.DeploymentCreated, "lobby", events.Fields{
			"groupName": fleet.GroupName("lobby"), "revision": int64(2), "strategy": deployment.Canary, "trigger": deployment.TriggerManual, "by": "ann",
		}}}},
		{"a decision about a deployment", []view.Change{{
			Kind: view.KindDeployment, Rev: 7, Key: []string{"lobby", "000000000002"},
			Before: &deployment.Deployment{}, After: &deployment.Deployment{Paused: true},
		}}, nil},
		{
			"progress of a deployment",
			[]view.Change{progressed(deployment.Progress{State: deployment.InProgress, Updated: 1, Total: 3}, deployment.Progress{State: deployment.InProgress, Updated: 2, Total: 3})},
			[]line{{"7", events.DeploymentProgress, "lobby", events.Fields{
				"groupName": fleet.GroupName("lobby"), "revision": int64(2), "state": deployment.InProgress, "updatedInstances": 2, "totalInstances": 3, "message": "",
			}}},
		},
		{
			"the end of a deployment",
			[]view.Change{progressed(deployment.Progress{State: deployment.InProgress, Updated: 1, Total: 3}, deployment.Progress{State: deployment.Failed, Updated: 1, Total: 3, Reason: deployment.ReasonCrashes, Message: "they crashed"})},
			[]line{{"7", events.DeploymentCompleted, "lobby", events.Fields{
				"groupName": fleet.GroupName("lobby"), "revision": int64(2), "outcome": deployment.Failed, "updatedInstances": 1, "totalInstances": 3,
				"reason": deployment.ReasonCrashes, "message": "they crashed",
			}}},
		},
		{
			"a rollback of a deployment that had ended",
			[]view.Change{progressed(deployment.Progress{State: deployment.Failed}, deployment.Progress{State: deployment.RolledBack, Message: "back"})},
			[]line{{"7", events.DeploymentRolledBack, "lobby", events.Fields{"groupName": fleet.GroupName("lobby"), "revision": int64(2), "message": "back"}}},
		},

		{"usage is live, and players of running instances with it", []view.Change{
			told(in(fleet.Starting), in(fleet.Online)),
			{Kind: view.KindReport, Rev: 8, Key: []string{"n1"}, After: &reports.Report{
				CPU: 0.5, MemoryMiB: 100, At: at,
				Instances: map[fleet.InstanceID]reports.InstanceReport{"abc123": {Players: 4}},
			}},
		}, []line{
			changed("7-1", "STARTING", "RUNNING", "Ready", ready), total("7-2", 1, 0), total("", 1, 4),
			{"", events.NodeStatus, "", events.Fields{
				"nodeId": fleet.NodeID("n1"), "cpuUsage": 0.5, "usedMemoryMb": 100, "totalMemoryMb": 0, "lastHeartbeatAt": at,
			}},
		}},
		{
			"a cache of another size is live too, before the usage of its node",
			[]view.Change{{
				Kind: view.KindReport, Rev: 7, Key: []string{"n1"}, Before: &reports.Report{CacheBytes: 1 << 20}, After: &reports.Report{CacheBytes: 3 << 20, At: at},
			}},
			[]line{
				{"", events.NodeCacheStatus, "", events.Fields{"nodeId": fleet.NodeID("n1"), "totalSizeBytes": int64(3 << 20), "timestamp": at}},
				{"", events.NodeStatus, "", events.Fields{"nodeId": fleet.NodeID("n1"), "cpuUsage": 0.0, "usedMemoryMb": 0, "totalMemoryMb": 0, "lastHeartbeatAt": at}},
			},
		},
		{"revisions are numbered apart", []view.Change{
			groupChange(nil, group(false, false)),
			{Kind: view.KindGroup, Rev: 9, Key: []string{"lobby"}, Before: group(false, false), After: group(false, false)},
		}, []line{
			{"7", events.GroupCreated, "lobby", events.Fields{"groupName": name}},
			{"9", events.GroupUpdated, "lobby", events.Fields{"groupName": name}},
		}},
		{
			"what has no type of its own is told by its entry in the audit",
			[]view.Change{audited("secret.update", "secret", "db")},
			[]line{{"7", events.ResourceChanged, "", events.Fields{"kind": "secret", "name": "db", "action": "update"}}},
		},
		{"what has one is not", []view.Change{
			audited("group.update", "group", "lobby"), audited("node.cordon", "node", "n1"), audited("config.patch", "config", "2"),
		}, nil},
		{"and what changes nothing is not", []view.Change{audited("auth.logout", "user", "ann"), audited("instance.command", "instance", "abc123")}, nil},
		{"an entry of the audit that is removed is nothing", []view.Change{{Kind: view.KindAudit, Rev: 7, Key: []string{"u"}, Before: &account.AuditSlip{}}}, nil},
		{"a restart in place is an end and a beginning", []view.Change{
			told(in(fleet.Online), in(fleet.Starting, again, because(fleet.ReasonRestartedInPlace))),
		}, []line{
			changed("7-1", "RUNNING", "CRASHED", "RestartedInPlace", fleet.ReasonRestartedInPlace.Text()),
			changed("7-2", nil, "STARTING", "RestartedInPlace", fleet.ReasonRestartedInPlace.Text()),
		}},
		{"another generation of one that runs is an end and a beginning", []view.Change{
			told(in(fleet.Stopping), in(fleet.Preparing, func(i *fleet.Instance) { i.Intent.Generation, i.Status.Generation = 2, 2 })),
		}, []line{changed("7-1", "STOPPING", "STOPPED", "Ready", ready), changed("7-2", nil, "PREPARING", "Ready", ready)}},
		{"an instance whose lost node is back begins again", []view.Change{
			told(in(fleet.Offline), in(fleet.Starting)),
		}, []line{changed("7", nil, "STARTING", "Ready", ready)}},
		{"what is only the machinery's is nothing", []view.Change{
			{Kind: view.KindPlan, Rev: 7, Key: []string{"d"}},
			{Kind: view.KindAlloc, Rev: 7, Key: []string{"n1"}},
			{Kind: view.KindUser, Rev: 7, Key: []string{"ann"}},
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			empty := view.New(nil, nil).Snapshot()
			got := events.Translate(view.Batch{Before: empty, After: empty, Changes: tc.changes}, events.TotalsOf(empty), seen)
			if d := cmp.Diff(tc.want, lines(got)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// possible are the transitions that PrexorCloud's clients know. "" is a missing or ended record.
var possible = map[string]string{
	"":          "SCHEDULED PREPARING STARTING RUNNING STOPPING STOPPED CRASHED",
	"SCHEDULED": "PREPARING STARTING RUNNING STOPPING STOPPED CRASHED",
	"PREPARING": "SCHEDULED STARTING RUNNING STOPPING STOPPED CRASHED",
	"STARTING":  "SCHEDULED RUNNING STOPPING STOPPED CRASHED",
	"RUNNING":   "DRAINING STOPPING STOPPED CRASHED",
	"DRAINING":  "RUNNING STOPPING STOPPED CRASHED",
	"STOPPING":  "STOPPED CRASHED",
}

func TestAClientOnlySeesTransitionsThatItHoldsPossible(t *testing.T) {
	empty := view.New(nil, nil).Snapshot()
	rapid.Check(t, func(t *rapid.T) {
		var before *fleet.Instance
		shown := ""
		for n := range rapid.IntRange(1, 12).Draw(t, "changes") {
			after := in(rapid.SampledFrom(fleet.States[:]).Draw(t, "state"))
			if before != nil {
				after.Intent.Generation = before.Intent.Generation + rapid.Int64Range(0, 1).Draw(t, "generations")
			}
			if after.Status != nil {
				after.Status.Generation = after.Intent.Generation
				after.Status.Restarts = rapid.IntRange(0, 3).Draw(t, "restarts")
			}
			if rapid.IntRange(0, 3).Draw(t, "retires") == 0 {
				after.Intent.Retire = &fleet.Retirement{Reason: fleet.ReasonRestart}
			}
			change := told(before, after)
			change.Rev = int64(n + 1)
			for _, e := range events.Translate(view.Batch{Before: empty, After: empty, Changes: []view.Change{change}}, events.TotalsOf(empty), time.Time{}) {
				if e.Type != events.InstanceStateChanged {
					continue
				}
				from, _ := e.Fields["oldState"].(string)
				to, _ := e.Fields["newState"].(string)
				ended := shown == "STOPPED" || shown == "CRASHED"
				if from != shown && !(from == "" && ended) {
					t.Fatalf("from %q to %q while %q is shown", from, to, shown)
				}
				if !slices.Contains(strings.Fields(possible[from]), to) {
					t.Fatalf("from %q to %q is impossible", from, to)
				}
				shown = to
			}
			if want := events.StateOf(after); shown != want {
				t.Fatalf("%s is shown as %q, want %q", after.State(), shown, want)
			}
			before = after
		}
	})
}

func TestPositions(t *testing.T) {
	for id, want := range map[string]events.Position{"0": {}, "17": {Rev: 17}, "17-2": {Rev: 17, N: 2}} {
		got, ok := events.ParsePosition(id)
		if !ok || got != want || got.String() != id {
			t.Errorf("ParsePosition(%q) = %+v, %v", id, got, ok)
		}
	}
	for _, id := range []string{"", "x", "-1", "+1", "017", "17-", "17-0", "17-1-1", "17-x", "99999999999999999999", "c1.17"} {
		if p, ok := events.ParsePosition(id); ok {
			t.Errorf("ParsePosition(%q) = %+v: it is no id of ours", id, p)
		}
	}
	order := []events.Position{{}, {Rev: 16}, {Rev: 17, N: 1}, {Rev: 17, N: 2}, {Rev: 17}, {Rev: 18, N: 1}}
	for i := range order {
		for j := range order {
			if got, want := order[i].Compare(order[j]), cmpInt(i, j); got != want {
				t.Errorf("%v against %v is %d, want %d", order[i], order[j], got, want)
			}
		}
	}
}

func cmpInt(i, j int) int {
	switch {
	case i < j:
		return -1
	case i > j:
		return 1
	}
	return 0
}

func FuzzParsePosition(f *testing.F) {
	f.Add("17-2")
	f.Fuzz(func(t *testing.T, id string) {
		if p, ok := events.ParsePosition(id); ok && p.String() != id {
			t.Errorf("%q is read as %v", id, p)
		}
	})
}

// progressed is a change of the progress of deployment 2 of the group lobby.
func progressed(before, after deployment.Progress) view.Change {
	before.Group, before.Number, after.Group, after.Number = "lobby", 2, "lobby", 2
	return view.Change{Kind: view.KindProgress, Rev: 7, Key: []string{"lobby", "000000000002"}, Before: &before, After: &after}
}
