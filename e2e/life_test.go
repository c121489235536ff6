package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

func TestOneInstanceFromRequestToProcessAndBack(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "lobby", nil))

	var started struct{ Count int }
	admin.Do("POST", "/api/v1/groups/lobby/start", map[string]int{"count": 1}).OK(200, &started)
	if started.Count != 1 {
		t.Errorf("count %d", started.Count)
	}
	i := admin.AwaitState("lobby-1", "RUNNING")
	if i.UID == "" || i.Port == 0 || i.PID == 0 || i.Node != "node-1" {
		t.Errorf("instance %+v", i)
	}
	status := pingArena(t, i.Port)
	if status.Players.Max != 7 || !strings.Contains(fmt.Sprint(status.Description), "lobby-1 of lobby") {
		t.Errorf("the template's placeholders did not arrive: %+v", status)
	}

	admin.Do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": `say "one" $HOME \n ;two`}).OK(200)
	admin.Do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": "say second"}).OK(200)
	await.That(t, "both lines on the console, verbatim and in order", func() string {
		var h struct{ Lines []struct{ Line string } }
		admin.Do("GET", "/api/v1/services/lobby-1/console/history", nil).OK(200, &h)
		all, _ := json.Marshal(h)
		first := slices.IndexFunc(h.Lines, func(l struct{ Line string }) bool { return strings.Contains(l.Line, `"one" $HOME \n ;two`) })
		second := slices.IndexFunc(h.Lines, func(l struct{ Line string }) bool { return strings.Contains(l.Line, "second") })
		if first >= 0 && second > first {
			return ""
		}
		return string(all)
	})
	if r := admin.Do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": "say \x01"}); r.Status != 422 {
		t.Errorf("a control character: %d %s", r.Status, r.Body)
	}

	admin.Do("POST", "/api/v1/services/lobby-1/stop", nil).OK(200)
	stopped := admin.AwaitState(i.UID, "STOPPED")
	if stopped.ExitCode == nil || *stopped.ExitCode != 0 {
		t.Errorf("exit code %v", stopped.ExitCode)
	}
	if proctest.Lives(i.PID) || !portFree(i.Port) {
		t.Errorf("stopped, but the process is gone: %v, the port free: %v", !proctest.Lives(i.PID), portFree(i.Port))
	}
	admin.Do("POST", "/api/v1/services/"+i.UID+"/stop", nil).OK(200) // stopping a stopped instance has no effect
	var h struct{ Lines []struct{ Line string } }
	admin.Do("GET", "/api/v1/services/"+i.UID+"/console/history", nil).OK(200, &h)
	if len(h.Lines) == 0 {
		t.Error("the log is gone after the exit")
	}
	admin.Do("DELETE", "/api/v1/services/"+i.UID, nil).OK(204)
	admin.Do("GET", "/api/v1/services/"+i.UID, nil).OK(404)
}

func TestAKilledServerIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "game", map[string]any{"minInstances": 3}))
	before := admin.AwaitRunning("game", 3)
	victim := before[1]
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	crashed := admin.AwaitState(victim.UID, "CRASHED")
	if crashed.ExitCode == nil || *crashed.ExitCode != 137 || crashed.Reason == "" {
		t.Errorf("crash told as %+v", crashed)
	}
	after := admin.AwaitRunning("game", 3)
	for _, i := range after {
		if i.UID == victim.UID {
			t.Error("the crashed instance runs again instead of a new one")
		}
		pingArena(t, i.Port)
	}
	if other := before[0]; admin.Instance(other.UID).PID != other.PID {
		t.Error("an unrelated instance was restarted")
	}
}

func TestMaintenanceOfAllGroupsHoldsReplacementsUntilItEnds(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "game", map[string]any{"minInstances": 2}))
	before := admin.AwaitRunning("game", 2)
	admin.Do("PUT", "/api/v1/maintenance", map[string]any{"enabled": true, "message": "back soon"}).OK(200)
	if err := syscall.Kill(before[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	admin.AwaitState(before[0].UID, "CRASHED")
	// A stop goes through the enforcer too, so it has seen the crash when this one ends.
	admin.Do("POST", "/api/v1/services/"+before[1].UID+"/stop", nil).OK(200)
	admin.AwaitState(before[1].UID, "STOPPED")
	admin.Do("PUT", "/api/v1/maintenance", map[string]any{"enabled": false}).OK(200)
	var m struct{ UpdatedAt time.Time }
	admin.Do("GET", "/api/v1/maintenance", nil).OK(200, &m)
	for _, i := range admin.AwaitRunning("game", 2) {
		var made struct{ CreatedAt time.Time }
		admin.Do("GET", "/api/v1/services/"+i.UID, nil).OK(200, &made)
		if made.CreatedAt.Before(m.UpdatedAt) {
			t.Errorf("%s was created at %v, before the maintenance ended at %v", i.ID, made.CreatedAt, m.UpdatedAt)
		}
	}
}

func TestScaleConvergesBothWays(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "fleet", nil))
	for _, n := range []int{4, 12, 2, 0} {
		admin.Do("POST", "/api/v1/groups/fleet/scale", map[string]int{"targetInstances": n}).OK(200)
		running := admin.AwaitRunning("fleet", n)
		ports := map[int]bool{}
		for _, i := range running {
			ports[i.Port] = true
		}
		if len(ports) != n {
			t.Errorf("%d instances on %d ports", n, len(ports))
		}
	}
	// The CLI does this by a PATCH of the limits.
	admin.Do("PATCH", "/api/v1/groups/fleet", map[string]int{"minInstances": 2, "maxInstances": 20}).OK(200)
	admin.AwaitRunning("fleet", 2)
	admin.Do("DELETE", "/api/v1/groups/fleet", nil).OK(204)
	admin.Do("GET", "/api/v1/groups/fleet", nil).OK(404)
	await.That(t, "no instance left", func() string {
		if left := admin.Running("fleet"); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
}

func TestFiftyParallelStartsGetDistinctPortsAndExactAccounting(t *testing.T) {
	c := cluster.Start(t, cluster.Options{MemoryMiB: 50 * 32, CPU: 10000})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "many", map[string]any{"maxInstances": 0}))
	var wg sync.WaitGroup
	ctx := cluster.Bounded(t)
	for range 50 {
		wg.Go(func() {
			r, err := admin.Try(ctx, "POST", "/api/v1/groups/many/start", map[string]int{"count": 1})
			if err != nil || r.Status != 200 {
				t.Errorf("start: %v %v", err, r)
			}
		})
	}
	wg.Wait()
	ports := map[int]bool{}
	for _, i := range admin.AwaitRunning("many", 50) {
		ports[i.Port] = true
	}
	if len(ports) != 50 {
		t.Errorf("50 instances on %d ports", len(ports))
	}
	// The node is full, so one more instance waits and gives the reason. A stop makes room
	// for it.
	admin.Do("POST", "/api/v1/groups/many/start", nil).OK(200)
	var waiting cluster.Instance
	await.That(t, "the 51st waiting with a reason", func() string {
		all := admin.Instances("many")
		for _, i := range all {
			if i.State == "SCHEDULED" && i.Reason == "NoNodeFits" && strings.Contains(i.Message, "memory") {
				waiting = i
				return ""
			}
		}
		return fmt.Sprintf("%+v", all[len(all)-1])
	})
	admin.Do("POST", "/api/v1/services/many-7/stop", nil).OK(200)
	admin.AwaitState(waiting.UID, "RUNNING")
}

func TestAStopLeavesNothingOfAStubbornTree(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	arena := cluster.Program(t, "./examples/arena/cmd/arena")
	createGroup(t, admin, arenaGroup(t, c, "stubborn", map[string]any{
		"command":              arena + " --ignore-stop --ignore-term --fork-daemon",
		"shutdownGraceSeconds": 1,
	}))
	admin.Do("POST", "/api/v1/groups/stubborn/start", nil).OK(200)
	i := admin.AwaitState("stubborn-1", "RUNNING")
	await.That(t, "the server and its daemon", func() string {
		if n := len(carriers(t, i.UID)); n < 2 {
			return fmt.Sprint(n, " processes")
		}
		return ""
	})
	admin.Do("POST", "/api/v1/services/stubborn-1/force-stop", nil).OK(200)
	admin.AwaitState(i.UID, "STOPPED")
	if left := carriers(t, i.UID); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

func TestACrashLoopIsPausedAndSaysSo(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "broken", "command": "echo no such world >&2; exit 3", "minInstances": 1})
	var group struct {
		Paused    bool `json:"paused"`
		CrashLoop *struct {
			PausedUntil string `json:"pausedUntil"`
		} `json:"crashLoop"`
	}
	await.That(t, "the pause", func() string {
		r := admin.Do("GET", "/api/v1/groups/broken", nil).OK(200, &group)
		if group.Paused && group.CrashLoop != nil && group.CrashLoop.PausedUntil != "" {
			return ""
		}
		return string(r.Body)
	})
	all := admin.Instances("broken")
	if len(all) != 3 {
		t.Errorf("%d instances were started before the pause, want 3", len(all))
	}
	for _, i := range all {
		if i.State != "CRASHED" || i.ExitCode == nil || *i.ExitCode != 3 || i.Reason != "Exited" {
			t.Errorf("%+v", i)
		}
	}
}

func TestACrashIsRecordedFromProcessToAPI(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{
		"name": "broken", "minInstances": 1, "command": `echo starting; echo "panic: no world in /srv/$RANDOM" >&2; exit 3`,
	})
	type crash struct {
		ID, InstanceID, Group, Node, Classification, CauseSummary, Signature, CrashedAt string
		ExitCode                                                                        *int
		LogTail                                                                         []string
	}
	var list struct {
		Data  []crash
		Total int
	}
	await.That(t, "three crashes", func() string {
		r := admin.Do("GET", "/api/v1/crashes?group=broken&since=1h", nil).OK(200, &list)
		return await.Unless(list.Total == 3, "%s", r.Body)
	})
	for _, one := range list.Data {
		if one.Signature != list.Data[0].Signature || one.Node != "node-1" || one.ExitCode == nil || *one.ExitCode != 3 || one.Classification != "UNKNOWN" {
			t.Errorf("%+v", one)
		}
	}
	var detail crash
	admin.Do("GET", "/api/v1/crashes/"+list.Data[0].ID, nil).OK(200, &detail)
	if len(detail.LogTail) != 2 || detail.LogTail[0] != "starting" || detail.LogTail[1] != detail.CauseSummary {
		t.Errorf("%+v", detail)
	}
	var trends struct {
		Total   int
		Buckets []struct{ Count int }
	}
	admin.Do("GET", "/api/v1/crashes/trends?window=1h&buckets=6", nil).OK(200, &trends)
	if trends.Total != 3 || len(trends.Buckets) != 6 {
		t.Errorf("%+v", trends)
	}
	var group struct{ Paused bool }
	await.That(t, "the pause", func() string {
		r := admin.Do("GET", "/api/v1/groups/broken", nil).OK(200, &group)
		return await.Unless(group.Paused, "%s", r.Body)
	})
	admin.Do("POST", "/api/v1/groups/broken/crash-loop/reset", nil).OK(200)
	await.That(t, "another start", func() string {
		admin.Do("GET", "/api/v1/crashes?group=broken", nil).OK(200, &list)
		return await.Unless(list.Total > 3, "%d", list.Total)
	})
}

func TestACommandThatDoesNotExistIsNamedInTheAPI(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "wrong", "command": "nosuchcommand --now", "portRangeStart": 23100, "portRangeEnd": 23110})
	admin.Do("POST", "/api/v1/groups/wrong/start", nil).OK(200)
	i := admin.AwaitState("wrong-1", "CRASHED")
	if i.Reason != "CommandMissing" || i.PID != 0 {
		t.Errorf("%+v", i)
	}
	var group struct{ Message string }
	admin.Do("GET", "/api/v1/groups/wrong", nil).OK(200, &group)
	if !strings.HasPrefix(group.Message, "wrong-1 is not restarted until the group changes: ") || !strings.Contains(group.Message, `"nosuchcommand"`) {
		t.Errorf("the group says %q", group.Message)
	}
}

func TestRestartingTheControlPlaneAdoptsWhatRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := cluster.Start(t, cluster.Options{DataDir: dir, KeepInstances: true})
	admin := cluster.Login(t, first)
	createGroup(t, admin, arenaGroup(t, first, "steady", map[string]any{"minInstances": 2}))
	before := admin.AwaitRunning("steady", 2)
	admin.Do("POST", "/api/v1/services/steady-1/command", map[string]string{"command": "say before"}).OK(200)
	first.Stop()
	for _, i := range before {
		if !proctest.Lives(i.PID) {
			t.Fatalf("instance %s did not survive", i.ID)
		}
	}
	second := cluster.Start(t, cluster.Options{DataDir: dir})
	admin = cluster.Login(t, second)
	after := admin.AwaitRunning("steady", 2)
	key := func(i cluster.Instance) string { return fmt.Sprint(i.UID, " ", i.PID, " ", i.Port) }
	if b, a := mapped(before, key), mapped(after, key); !slices.Equal(b, a) {
		t.Errorf("before %v, after %v", b, a)
	}
	admin.Do("POST", "/api/v1/services/steady-1/command", map[string]string{"command": "say after"}).OK(200)
	await.That(t, "the console going on", func() string {
		r := admin.Do("GET", "/api/v1/services/steady-1/console/history?limit=10000", nil).OK(200)
		if strings.Contains(string(r.Body), "before") && strings.Contains(string(r.Body), "after") {
			return ""
		}
		return string(r.Body)
	})
	second.Stop()
	for _, i := range after {
		if left := carriers(t, i.UID); len(left) > 0 {
			t.Errorf("processes %v of %s outlived a stop with its instances", left, i.ID)
		}
	}
}

func mapped(in []cluster.Instance, f func(cluster.Instance) string) []string {
	var out []string
	for _, i := range in {
		out = append(out, f(i))
	}
	slices.Sort(out)
	return out
}

func TestPortsOfStrangersAreAvoidedWithoutAPause(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	for port := 23000; port < 23004; port++ { // more than the crashes that pause a group
		l, err := net.Listen("tcp", fmt.Sprint(":", port))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	udp, err := net.ListenPacket("udp", ":23004")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	createGroup(t, admin, arenaGroup(t, c, "guest", map[string]any{"minInstances": 2, "portRangeStart": 23000, "portRangeEnd": 23010}))
	for _, i := range admin.AwaitRunning("guest", 2) {
		if i.Port < 23005 {
			t.Errorf("%s runs on a stranger's port %d", i.ID, i.Port)
		}
	}
}
