package apigateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// crash records a crash as an agent does; edit may be nil.
func (s *site) crash(n int, ago time.Duration, edit func(*reports.Crash)) reports.Crash {
	s.t.Helper()
	c := reports.Crash{
		ID: fmt.Sprintf("abc%03d-1-1", n), Instance: fleet.InstanceID(fmt.Sprintf("abc%03d", n)), Name: fmt.Sprintf("lobby-%d", n), Group: "lobby",
		GroupRevision: 3, Node: "node-1", Generation: 1, Reason: fleet.ReasonExited, Exit: &fleet.Exit{Code: 1, Known: true},
		Category: reports.CrashGeneral, Cause: "panic: out of luck", Fingerprint: "0123456789abcdef", At: time.Now().UTC().Add(-ago),
	}
	c.StartedAt = c.At.Add(-90 * time.Second)
	if edit != nil {
		edit(&c)
	}
	s.commit(store.Create(keys.Crash(c.ID), c), store.Create(keys.CrashTail(c.ID), reports.NewCrashTail(c.ID, []string{"starting", c.Cause}, true)))
	return c
}

func (r *reply) ids() string {
	var all []string
	for _, d := range r.data() {
		all = append(all, d.(map[string]any)["uid"].(string))
	}
	return strings.Join(all, " ")
}

func TestCrashesAreListedNewestFirstAndFiltered(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("GET", "/api/v1/crashes", nil).want(200).is("total", 0).is("data", []any{})
	s.crash(1, 3*time.Hour, nil)
	s.crash(2, 2*time.Hour, func(c *reports.Crash) {
		c.Group, c.Name, c.Node, c.Category, c.Fingerprint = "arena", "arena-1", "node-2", reports.CrashOutOfMemory, "fedcba9876543210"
	})
	last := s.crash(3, time.Hour, nil)
	all := s.do("GET", "/api/v1/crashes", nil).want(200).is("total", 3)
	if got := all.ids(); got != "abc003 abc002 abc001" {
		t.Errorf("in order %s", got)
	}
	first := all.data()[0].(map[string]any)
	for field, want := range map[string]any{
		"id": last.ID, "instanceId": "lobby-3", "group": "lobby", "node": "node-1", "nodeId": "node-1", "exitCode": 1.0, "classification": "GENERAL_ERROR",
		"causeSummary": "panic: out of luck", "signature": "0123456789abcdef", "uptimeMs": 90000.0, "revision": 3.0, "reason": "Exited",
	} {
		if first[field] != want {
			t.Errorf("%s is %v, want %v", field, first[field], want)
		}
	}
	between := time.Now().UTC().Add(-150 * time.Minute)
	for query, want := range map[string]string{
		"group=arena": "abc002", "node=node-1": "abc003 abc001", "instance=lobby-1": "abc001", "instance=abc002": "abc002", "category=oom": "abc002",
		"classification=GENERAL_ERROR": "abc003 abc001", "signature=fedcba9876543210": "abc002", "since=150m": "abc003 abc002", "group=nobody": "",
		"from=" + between.Format(time.RFC3339): "abc003 abc002", fmt.Sprint("since=", between.UnixMilli()): "abc003 abc002",
		fmt.Sprint("until=", between.Unix()): "abc001", "pageSize=1&page=2": "abc002", "limit=2": "abc003 abc002", "group=lobby&since=2h": "abc003",
	} {
		if got := s.do("GET", "/api/v1/crashes?"+query, nil).want(200).ids(); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for _, bad := range []string{"since=yesterday", "until=-1h", "category=SAD", "page=x", "limit=x"} {
		s.do("GET", "/api/v1/crashes?"+bad, nil).want(400).naming(strings.Split(bad, "=")[0])
	}
}

func TestACrashIsShownWithItsTailThoughItsNodeIsGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.crash(1, time.Hour, func(c *reports.Crash) { c.Exit = &fleet.Exit{} })
	s.do("GET", "/api/v1/crashes/"+c.ID, nil).want(200).is("id", c.ID).is("exitCode", nil).is("logTail", []string{"starting", c.Cause}).is("logTailTruncated", true)
	s.do("GET", "/api/v1/crashes/nothing", nil).want(404).naming("30 days")
}

func TestTrendsCountWhatTheListShows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for n := range 5 {
		s.crash(n, time.Duration(n)*10*time.Hour+time.Minute, func(c *reports.Crash) {
			if n%2 == 1 {
				c.Category, c.Group = reports.CrashSegfault, "arena"
			}
		})
	}
	day := s.do("GET", "/api/v1/crashes/trends", nil).want(200).is("total", 3).is("windowSeconds", 86400).is("bucketSeconds", 3600).
		is("totalsByClassification", map[string]int{"GENERAL_ERROR": 2, "SIGSEGV": 1})
	buckets, _ := day.field("buckets").([]any)
	for n, want := range map[int]float64{23: 1, 22: 0, 13: 1, 3: 1, 0: 0} {
		if len(buckets) != 24 || buckets[n].(map[string]any)["count"] != want {
			t.Errorf("bucket %d of %v", n, buckets)
		}
	}
	s.do("GET", "/api/v1/crashes/trends?window=7d&buckets=7&group=arena", nil).want(200).is("total", 2).is("bucketSeconds", 86400)
	s.do("GET", "/api/v1/crashes/trends?window=3600&buckets=9999", nil).want(200).is("bucketSeconds", 12)
	for _, bad := range []string{"window=long", "window=-1h", "buckets=x"} {
		s.do("GET", "/api/v1/crashes/trends?"+bad, nil).want(400).naming(strings.Split(bad, "=")[0])
	}
}

func TestACrashLoopIsShownAndReset(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	const path = "/api/v1/groups/lobby/crash-loop/reset"
	s.do("POST", path, nil).want(200).is("changed", false).is("group.paused", false)
	since := time.Now().UTC().Add(time.Minute) // the node's clock is ahead
	s.commit(store.Create(keys.CrashLoop("lobby"), crashloop.Loop{
		Group: "lobby", GroupRevision: 1, Level: 2, Crashes: 3, Since: since, PausedUntil: since.Add(time.Hour),
		Blame: crashloop.Blame{Suspect: reports.SuspectNode, Node: "node-1", Because: "three groups crashed on node node-1"},
		Last:  "the last was lobby-1 on node-1: out of memory",
	}))
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("paused", true).is("crashLoop.level", 2).is("crashLoop.revision", 1).
		is("crashLoop.suspect", "node").is("crashLoop.node", "node-1").naming("three groups")
	for _, part := range []string{"paused after 3 crashes since ", "three groups crashed on node node-1", "the last was lobby-1 on node-1: out of memory", since.Add(time.Hour).Format(time.RFC3339), "orrery crash reset lobby"} {
		r := s.do("GET", "/api/v1/groups/lobby", nil).want(200)
		for _, field := range []string{"message", "crashLoop.message"} {
			if text, _ := r.field(field).(string); !strings.Contains(text, part) {
				t.Errorf("%s does not say %q: %s", field, part, text)
			}
		}
	}
	ended := s.start("lobby")
	s.status(ended, "node-1", fleet.Status{State: fleet.Crashed, Reason: fleet.ReasonExited})
	s.do("GET", "/api/v1/instances/"+string(ended)+"/explain", nil).want(200).is("chain.3.step", "paused").is("chain.3.reason", "CrashLoop").naming("orrery crash reset lobby")
	s.do("POST", path, nil).want(200).is("changed", true)
	s.do("POST", path, nil).want(200).is("changed", false)
	loop, _ := s.view.Snapshot().CrashLoops.Get("lobby")
	g, _ := s.view.Snapshot().Groups.Get("lobby")
	if !loop.ResetBy(g) || g.Revision != 1 {
		t.Errorf("%+v of %+v", loop, g)
	}
	s.do("POST", "/api/v1/groups/nobody/crash-loop/reset", nil).want(404)
	s.user("viewer", "VIEWER").do("POST", path, nil).want(403)
	s.do("GET", "/api/v1/audit", nil).want(200).naming("group.crash-loop.reset")
}

func TestAPauseThatIsOverIsNotExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	past := time.Now().UTC().Add(-time.Hour)
	s.commit(store.Create(keys.CrashLoop("lobby"), crashloop.Loop{
		Group: "lobby", GroupRevision: 1, Level: 1, Crashes: 3, Since: past, PausedUntil: past.Add(time.Minute), Last: "lobby-1",
	}))
	ended := s.start("lobby")
	s.status(ended, "node-1", fleet.Status{State: fleet.Crashed, Reason: fleet.ReasonExited})
	s.do("GET", "/api/v1/groups/lobby", nil).want(200).is("paused", false).is("message", "").is("crashLoop.message", "")
	if r := s.do("GET", "/api/v1/instances/"+string(ended)+"/explain", nil).want(200); strings.Contains(r.raw, "crash-loop") {
		t.Errorf("it is: %s", r.raw)
	}
}

func TestNonCrashReasonsInBothDialects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	for _, c := range []struct {
		status     fleet.Status
		v1         string
		whichSince string
	}{
		{fleet.Status{State: fleet.Crashed, Reason: fleet.ReasonExited, Message: "it exited with code 1"}, "Exited", "it exited with code 1"},
		{fleet.Status{State: fleet.Failed, Reason: fleet.ReasonTemplateMissing, Message: "template lobby/base is not there"}, "TemplateMissing", "template lobby/base is not there"},
		{fleet.Status{State: fleet.Failed, Reason: fleet.ReasonPrepareFailed}, "PrepareFailed", fleet.ReasonPrepareFailed.Text()},
		{fleet.Status{State: fleet.Offline, Reason: fleet.ReasonNodeLost, Message: "node node-1 is lost"}, "NODE_LOST", "node node-1 is lost"},
	} {
		id := s.start("lobby")
		s.status(id, "node-1", c.status)
		s.do("GET", "/api/v1/services/"+string(id), nil).want(200).is("state", "CRASHED").is("reason", c.v1).is("message", c.whichSince)
		s.do("GET", "/api/instances/"+string(id), nil).want(200).is("state", "OFFLINE").is("reason", c.status.Reason).is("message", c.whichSince)
	}
}
