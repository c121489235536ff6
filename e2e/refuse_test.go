package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// catGroup returns the spec of a group that runs cat, which ends when asked to.
func catGroup(name string, extra map[string]any) map[string]any {
	spec := map[string]any{"name": name, "command": "exec cat", "memoryMb": 8, "shutdownGraceSeconds": 0}
	for k, v := range extra {
		spec[k] = v
	}
	return spec
}

func TestTenParallelCreatesOfOneNameGiveOne201(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	ctx := cluster.Bounded(t)
	for round := range 5 {
		group := catGroup(fmt.Sprintf("same-%d", round), nil)
		var created, refused atomic.Int32
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				r, err := admin.Try(ctx, "POST", "/api/v1/groups", group)
				switch {
				case err != nil:
					t.Error(err)
				case r.Status == 201:
					created.Add(1)
				case r.Status == 409 && strings.Contains(string(r.Body), "CONFLICT"):
					refused.Add(1)
				default:
					t.Errorf("%d %s", r.Status, r.Body)
				}
			})
		}
		wg.Wait()
		if created.Load() != 1 || refused.Load() != 9 {
			t.Errorf("%d created, %d refused; want 1 and 9", created.Load(), refused.Load())
		}
	}
}

func TestWhatNoNodeCouldHoldIsRefusedWithoutATrace(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{MemoryMiB: 100, CPU: 400})
	admin := cluster.Login(t, c)
	createGroup(t, admin, catGroup("huge", map[string]any{"memoryMb": 101}))
	for path, status := range map[string]int{"/api/v1/groups/huge/start": 409, "/api/instances": 503} {
		var body any
		if status == 503 {
			body = map[string]string{"configurationName": "huge"}
		}
		r := admin.Do("POST", path, body).OK(status)
		if !strings.Contains(string(r.Body), "101 MiB") || !strings.Contains(string(r.Body), "100") {
			t.Errorf("%s does not say what is asked and what there is: %s", path, r.Body)
		}
	}
	if left := admin.Instances("huge"); len(left) != 0 {
		t.Errorf("records left: %+v", left)
	}
	var all []universeInstance
	if admin.Do("GET", "/api/instances?all=true", nil).OK(200, &all); len(all) != 0 {
		t.Errorf("records left: %+v", all)
	}
	// A group that only has to wait for resources is accepted.
	createGroup(t, admin, catGroup("half", map[string]any{"memoryMb": 60}))
	admin.Do("POST", "/api/v1/groups/half/start", map[string]int{"count": 2}).OK(200)
	admin.AwaitRunning("half", 1)
}

func TestACommandToAnInstanceThatDoesNotRunIsAConflict(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, catGroup("quiet", nil))
	admin.Do("POST", "/api/v1/groups/quiet/start", nil).OK(200)
	i := admin.AwaitState("quiet-1", "RUNNING")
	admin.Do("POST", "/api/v1/services/quiet-1/stop", nil).OK(200)
	admin.AwaitState(i.UID, "STOPPED")
	command := map[string]string{"command": "hello"}
	for _, path := range []string{"/api/v1/services/" + i.UID + "/command", "/api/instances/" + i.UID + "/execute"} {
		if r := admin.Do("POST", path, command).OK(409); !strings.Contains(string(r.Body), "has stopped") {
			t.Errorf("%s does not say that it is stopped: %s", path, r.Body)
		}
	}
	admin.Do("POST", "/api/v1/services/nobody-1/command", command).OK(404)
	admin.Do("POST", "/api/instances/nobody/execute", command).OK(404)
}

func TestARuntimeNoNodeOffersIsWaitedForAndNamed(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	runtime := unofferedRuntime(t, admin)
	createGroup(t, admin, catGroup("elsewhere", map[string]any{"runtime": runtime, "minInstances": 1, "container": map[string]any{"image": "nobody/nothing"}}))
	await.That(t, "the instance waiting for "+runtime, func() string {
		all := admin.Instances("elsewhere")
		if len(all) == 1 && all[0].State == "SCHEDULED" && all[0].Reason == "NoNodeFits" && strings.Contains(all[0].Message, runtime) {
			return ""
		}
		return fmt.Sprintf("%+v", all)
	})
	var older universeInstance
	admin.Do("GET", "/api/instances/elsewhere-1", nil).OK(200, &older)
	if older.State != "CREATING" || older.ProcessPID != nil {
		t.Errorf("in the older dialect: %+v", older)
	}
	if r := admin.Do("POST", "/api/v1/groups", catGroup("never", map[string]any{"runtime": "abacus"})).OK(422); !strings.Contains(string(r.Body), "runtime") {
		t.Errorf("the field is not named: %s", r.Body)
	}
	admin.Do("GET", "/api/v1/groups/never", nil).OK(404)
}

func TestInstancesStartedByHandAreLeftAloneByTheMinimum(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, catGroup("mixed", map[string]any{"minInstances": 1}))
	admin.AwaitRunning("mixed", 1)
	admin.Do("POST", "/api/v1/groups/mixed/start", map[string]int{"count": 2}).OK(200)
	byHand := map[string]int{}
	for _, i := range admin.AwaitRunning("mixed", 3) {
		if i.ID != "mixed-1" {
			byHand[i.UID] = i.PID
		}
	}
	for _, step := range []struct{ minimum, running int }{{5, 5}, {0, 2}, {1, 2}, {3, 3}, {0, 2}} {
		admin.Do("PATCH", "/api/v1/groups/mixed", map[string]int{"minInstances": step.minimum}).OK(200)
		running := map[string]int{}
		for _, i := range admin.AwaitRunning("mixed", step.running) {
			running[i.UID] = i.PID
		}
		for uid, pid := range byHand {
			if running[uid] != pid {
				t.Fatalf("minimum %d: %s, started by hand, is gone or another process: %v", step.minimum, uid, running)
			}
		}
	}
}

// unofferedRuntime returns an existing runtime that no node of the cluster offers.
func unofferedRuntime(t *testing.T, admin *cluster.Client) string {
	t.Helper()
	var nodes []struct {
		Runtimes []string `json:"runtimes"`
	}
	admin.Do("GET", "/api/cluster/nodes", nil).OK(200, &nodes)
	offered := map[string]bool{}
	for _, n := range nodes {
		for _, r := range n.Runtimes {
			offered[r] = true
		}
	}
	for _, r := range []string{"docker", "screen", "tmux"} {
		if !offered[r] {
			return r
		}
	}
	t.Fatalf("every runtime is offered: %+v", nodes)
	return ""
}
