package nodeagent_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent"
)

// agentProcess runs an agent in this process until it is killed.
func agentProcess() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := store.Dial([]string{os.Getenv("TEST_ETCD")}, store.Options{Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a, err := nodeagent.New(nodeagent.Config{
		Store: c, Node: node, DataDir: os.Getenv("TEST_DATA"), ClusterSecret: secret, Templates: newLibrary(),
		Log: log, SessionTTL: ttl(), Guard: nodeagent.OwnGuard(), Pane: nodeagent.OwnPane(), MemoryMiB: 4096, CPU: 400, Address: "play.example.org",
		InstanceUIDs: os.Getenv("TEST_UIDS"),
		APIURL:       "http://127.0.0.1:8080", Variables: map[string]string{"REGION": "north"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := a.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// ttl is the session TTL that the parent process requested.
func ttl() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TEST_TTL")); err == nil {
		return d
	}
	return 2 * time.Second
}

// spawn runs an agent as a process of its own and returns how to kill it.
func (s *site) spawn() (kill func()) {
	_, kill = s.spawnAt(s.etcd.Endpoint)
	return kill
}

// spawnAt is spawn with the store at an address. It also returns the agent's PID.
func (s *site) spawnAt(endpoint string, env ...string) (pid int, kill func()) {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "ORRERY_TEST_MODE=agent", "TEST_ETCD="+endpoint, "TEST_DATA="+s.dir)
	cmd.Env = append(cmd.Env, env...)
	var out strings.Builder
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	dead := false
	kill = func() {
		if dead {
			return
		}
		dead = true
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		if s.t.Failed() || testing.Verbose() {
			s.t.Logf("the agent said:\n%s", &out)
		}
	}
	s.t.Cleanup(kill)
	return cmd.Process.Pid, kill
}
