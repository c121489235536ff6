package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// workloads are the third-party programs from e2e/workloads.
type workloads struct{ server, ping string }

func buildWorkloads(t *testing.T) workloads {
	t.Helper()
	out := cluster.OpenDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./build.sh", out)
	cmd.Dir = filepath.Join(cluster.Root(t), "e2e", "workloads")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the foreign game server: %v\n%s", err, b)
	}
	return workloads{server: filepath.Join(out, "dragonfly"), ping: filepath.Join(out, "raknet-ping")}
}

// answers checks that a server answers a RakNet ping on its port.
func (w workloads) answers(t *testing.T, i cluster.Instance) {
	t.Helper()
	cmd := exec.CommandContext(cluster.Bounded(t), w.ping, "-timeout", "30s", address(i.Port))
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s does not answer on port %d: %v\n%s", i.ID, i.Port, err, b)
	}
}

// Dragonfly is a real third-party Bedrock server. It uses UDP, reads a TOML file and has no
// console.
func TestARealGameServerIsRunReplacedAndScaled(t *testing.T) {
	t.Parallel()
	w := buildWorkloads(t)
	c := cluster.Start(t, cluster.Options{MemoryMiB: 10_000, CPU: 10_000})
	admin := cluster.Login(t, c)
	config, err := os.ReadFile(filepath.Join(cluster.Root(t), "examples", "templates", "bedrock", "dragonfly", "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	cluster.WriteTemplate(t, c, "bedrock/dragonfly", map[string]string{"config.toml": string(config)})
	createGroup(t, admin, map[string]any{
		"name": "bedrock", "command": "exec " + w.server, "templates": []string{"bedrock/dragonfly"},
		"fileModifications": []string{"config.toml"}, "minInstances": 3, "memoryMb": 256,
		"portRangeStart": 24000, "portRangeEnd": 24100, "stopCommand": "", "shutdownGraceSeconds": 10,
		"readiness": map[string]any{"type": "bedrock"}, "liveness": map[string]any{"type": "bedrock", "intervalSeconds": 1},
	})
	running := admin.AwaitRunning("bedrock", 3)
	ports := map[int]bool{}
	for _, i := range running {
		w.answers(t, i)
		ports[i.Port] = true
	}
	if len(ports) != 3 {
		t.Errorf("three servers on %d ports", len(ports))
	}

	victim := running[0]
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	admin.AwaitState(victim.UID, "CRASHED")
	for _, i := range admin.AwaitRunning("bedrock", 3) {
		if i.UID == victim.UID {
			t.Error("the killed instance runs again instead of a new one")
		}
		w.answers(t, i)
	}

	for _, n := range []int{5, 1} {
		admin.Do("POST", "/api/v1/groups/bedrock/scale", map[string]int{"targetInstances": n}).OK(200)
		for _, i := range admin.AwaitRunning("bedrock", n) {
			w.answers(t, i)
		}
	}
	all := admin.Instances("bedrock")
	admin.Do("DELETE", "/api/v1/groups/bedrock", nil).OK(204)
	await.That(t, "no process of the group left", func() string {
		for _, i := range all {
			if left := carriers(t, i.UID); len(left) > 0 {
				return fmt.Sprint(i.ID, " still has ", left)
			}
		}
		return ""
	})
}
