package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// beTheProgram makes the test binary the program itself.
	beTheProgram = "ORRERY_TEST_NODEAGENT"
)

func TestMain(m *testing.M) {
	if os.Getenv(beTheProgram) != "" {
		os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// start runs the program as a process of its own until the test ends.
func start(t *testing.T, endpoint, data string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "--etcd-endpoints", endpoint, "--data", data, "--node", "node-1", "--session-ttl", "2s",
		"--admin-address", "127.0.0.1:0", "--stop-instances", "--instance-user", strconv.Itoa(os.Geteuid()))
	cmd.Env = append(os.Environ(), beTheProgram+"=1", "ORRERY_CLUSTER_SECRET="+strings.Repeat("s", 32))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() || testing.Verbose() {
			t.Logf("the agent said:\n%s", &out)
		}
	})
}

// call runs a local command and returns its exit code and output.
func call(args ...string) (code int, stdout, stderr string) {
	var out, complaint bytes.Buffer
	code = run(append([]string{"local"}, args...), nil, &out, &complaint)
	return code, out.String(), complaint.String()
}

// eventually repeats a local command until its output contains all of the wanted texts.
func eventually(t *testing.T, wanted []string, args ...string) (out string) {
	t.Helper()
	await.That(t, fmt.Sprintf("%q of %v", wanted, args), func() string {
		code, stdout, complaint := call(args...)
		out = stdout
		missing := slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(out, w) })
		return await.Unless(code == exitOK && !missing, "exit code %d, %q, %q", code, out, complaint)
	})
	return out
}

func put[T any](t *testing.T, etcd *storetest.Etcd, key keys.Key[T], value T) {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Raw().Put(t.Context(), key.String(), string(b)); err != nil {
		t.Fatal(err)
	}
}

func place(t *testing.T, etcd *storetest.Etcd, id fleet.InstanceID, name, command string) {
	t.Helper()
	plan := fleet.Plan{
		Group: "lobby", Runtime: fleet.RuntimeProcess, Command: command, OnCrash: fleet.CrashReplace,
		Stop: fleet.Stop{GraceSeconds: 1, Signal: "TERM"}, Readiness: fleet.Check{Type: fleet.CheckNone},
	}
	put(t, etcd, keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan, TouchedAt: time.Now()})
	placeAgain(t, etcd, id, name, plan, 1)
}

func placeAgain(t *testing.T, etcd *storetest.Etcd, id fleet.InstanceID, name string, plan fleet.Plan, generation int64) {
	t.Helper()
	put(t, etcd, keys.Placement("node-1", id), fleet.Placement{
		Instance: id, Name: name, Group: "lobby", Node: "node-1", Generation: generation, Plan: plan.Digest(), PlacedAt: time.Now(),
	})
}

// A static instance keeps its id, so its stop is over when its next generation exists.
func TestStopReturnsWhenGroupRestartsInstance(t *testing.T) {
	etcd := storetest.Start(t)
	data, tag := t.TempDir(), strings.ToLower(rand.Text()[:5])
	static, other, last := fleet.InstanceID(tag+"a"), fleet.InstanceID(tag+"b"), filepath.Join(t.TempDir(), "last")
	start(t, etcd.Endpoint, filepath.Join(data, "node"))
	eventually(t, []string{"alive, epoch"}, "status", "-data", data)
	plan := fleet.Plan{
		Group: "lobby", Runtime: fleet.RuntimeProcess, Static: true, OnCrash: fleet.CrashReplace,
		Command: "trap 'until [ -e " + last + " ]; do sleep 0.01; done; exit' TERM; echo ready; while :; do sleep 0.01; done",
		Stop:    fleet.Stop{GraceSeconds: 1000, Signal: "TERM"}, Readiness: fleet.Check{Type: fleet.CheckNone},
	}
	put(t, etcd, keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan, TouchedAt: time.Now()})
	placeAgain(t, etcd, static, "lobby-1", plan, 1)
	place(t, etcd, other, "lobby-2", "exec sleep 1000")
	eventually(t, []string{"2 ONLINE"}, "status", "-data", data)
	eventually(t, []string{"ready"}, "console", "lobby-1", "-data", data)

	type result struct {
		code int
		said string
	}
	stopped := make(chan result, 1)
	go func() {
		code, out, complaint := call("stop", "-all", "-data", data)
		stopped <- result{code, out + complaint}
	}()
	eventually(t, []string{"1 STOPPING", "1 STOPPED"}, "status", "-data", data)
	placeAgain(t, etcd, static, "lobby-1", plan, 2)
	if err := os.WriteFile(last, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-stopped:
		for _, want := range []string{
			fmt.Sprintf("stopping lobby-1 (%s)\n", static), fmt.Sprintf("stopping lobby-2 (%s)\n", other),
			fmt.Sprintf("lobby-2 (%s) is STOPPED\n", other),
			fmt.Sprintf("lobby-1 (%s) is STOPPED; its group has restarted it as generation 2, which is ", static),
		} {
			if r.code != exitOK || !strings.Contains(r.said, want) {
				t.Errorf("exit code %d, %q lacks %q", r.code, r.said, want)
			}
		}
	case <-time.After(await.Patience):
		_, out, _ := call("list", "-data", data)
		t.Fatalf("the stop has not returned; the agent has\n%s", out)
	}
}

func TestLocalCommandsWorkWithoutEtcd(t *testing.T) {
	etcd := storetest.Start(t)
	etcd.Stop()
	data, tag := t.TempDir(), strings.ToLower(rand.Text()[:5]) // no other test's instances are called so
	one, two, ten := tag+"a", tag+"b", tag+"c"
	start(t, etcd.Endpoint, filepath.Join(data, "node"))
	eventually(t, []string{"not reached since this agent started", "none: the control plane may", "instances  none"}, "status", "--data", data)
	eventually(t, []string{"no instance is on this node"}, "list", "-data", data)

	etcd.Restart(t)
	eventually(t, []string{"reachable since", "alive, epoch"}, "status", "-data", data)
	place(t, etcd, fleet.InstanceID(one), "lobby-1", `echo ready; while read x; do echo "got $x"; done`)
	place(t, etcd, fleet.InstanceID(two), "lobby-2", "sleep 1000")
	place(t, etcd, fleet.InstanceID(ten), "lobby-10", "sleep 1000")
	table := eventually(t, []string{one + "  lobby-1", two + "  lobby-2", ten + "  lobby-10"}, "list", "-data", data)
	if !strings.HasPrefix(table, "ID ") || strings.Index(table, ten) < strings.Index(table, two) {
		t.Errorf("the table is\n%s", table)
	}
	eventually(t, []string{"3 ONLINE"}, "status", "-data", data)

	etcd.Stop()
	eventually(t, []string{"not reachable, last contact"}, "status", "-data", data)
	consoles(t, data, one)
	stops(t, data, one)
	etcd.Restart(t)
	eventually(t, []string{"3 STOPPED", "reachable since"}, "status", "-data", data)
}

func consoles(t *testing.T, data, one string) {
	if code, _, complaint := call("send", "-data", data, "lobby-1", "say", "-5 times"); code != exitOK {
		t.Fatalf("send: %d, %s", code, complaint)
	}
	eventually(t, []string{"ready\ngot say -5 times\n"}, "console", "lobby-1", "-data", data)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-lines", "1"}, "got say -5 times\n"},
		{[]string{"-lines", "0"}, ""},
		{[]string{"-from", "6"}, "got say -5 times\n"},
		{[]string{"-from", "2", "-json"}, `{"offset":2,"text":"ady"}` + "\n" + `{"offset":6,"text":"got say -5 times"}` + "\n"},
	} {
		if code, out, complaint := call(append([]string{"console", one, "-data", data}, c.args...)...); code != exitOK || out != c.want {
			t.Errorf("console %v: %d, %q, %s, want %q", c.args, code, out, complaint, c.want)
		}
	}
}

func stops(t *testing.T, data, one string) {
	for _, c := range []struct {
		rule string
		args []string
		code int
		want []string
	}{
		{"stop needs a target", []string{"stop"}, exitUsage, []string{"say what to stop"}},
		{"all and an instance conflict", []string{"stop", "-all", "lobby-1"}, exitUsage, []string{"exactly one"}},
		{"unknown instance stops nothing", []string{"stop", "lobby-1", "lobby-9"}, exitFailure, []string{"no instance lobby-9"}},
		{"by name", []string{"stop", "lobby-1"}, exitOK, []string{
			"stopping lobby-1 (" + one + ")", "the group's minimum will start another instance when the control plane is back, unless you scale it down", "lobby-1 (" + one + ") is STOPPED",
		}},
		{"ended instance is no error", []string{"stop", one}, exitOK, []string{one + " has ended already", "nothing to stop"}},
		{"all, at once, for scripts", []string{"stop", "--all", "--force", "--json"}, exitOK, []string{`"state":"STOPPED","reason":"StoppedLocally"`, `"note":`}},
		{"console without a reader", []string{"send", "lobby-2", "x"}, exitFailure, []string{"nothing reads its console"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			code, out, complaint := call(append([]string{c.args[0], "-data", data}, c.args[1:]...)...)
			for _, w := range c.want {
				if !strings.Contains(out+complaint, w) {
					t.Errorf("%q is not in %q, %q", w, out, complaint)
				}
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, complaint)
			}
		})
	}
}

func TestLocalCommandsWithoutAgentGiveAdvice(t *testing.T) {
	empty, dead := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(dead, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	stale := t.TempDir()
	if err := os.MkdirAll(filepath.Join(stale, "node", "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(stale, "node", client.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for _, c := range []struct {
		rule string
		args []string
		code int
		says string
	}{
		{"no data directory", []string{"list", "-data", empty}, exitNoAgent, "no agent has its data in " + empty},
		{"agent has ended", []string{"list", "-data", dead}, exitNoAgent, "no agent runs on this data directory: " + dead},
		{"agent was killed", []string{"status", "-data", stale}, exitNoAgent, "left from an agent that died"},
		{"unknown command", []string{"lisst", "-data", dead}, exitUsage, `no command "lisst"`},
		{"unknown flag", []string{"list", "-dta", dead}, exitUsage, "dta"},
		{"too many words", []string{"list", "-data", dead, "all"}, exitUsage, "takes no further words"},
		{"too few words", []string{"console", "-data", dead}, exitUsage, "one instance"},
		{"a flag within the line", []string{"send", "lobby-1", "say", "hi", "-data", dead}, exitUsage, "-data is in the line"},
		{"a flag within the line", []string{"send", "lobby-1", "say", "--data=" + dead}, exitUsage, "put it before the id"},
		{"flag after -- belongs to the line", []string{"send", "-data", dead, "lobby-1", "--", "say", "-json"}, exitNoAgent, ""},
		{"missing line", []string{"send", "-data", dead, "lobby-1"}, exitUsage, "a line"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if code, out, complaint := call(c.args...); code != c.code || out != "" || !strings.Contains(complaint, c.says) {
				t.Errorf("exit code %d, %q, %q, want %d and %q", code, out, complaint, c.code, c.says)
			}
		})
	}
	if code, out, _ := call("help"); code != exitOK || !strings.Contains(out, "Exit codes") {
		t.Errorf("help: %d, %q", code, out)
	}
	var out bytes.Buffer
	if code := run([]string{"local", "list"}, []string{"ORRERY_DATA=" + dead}, &out, &out); code != exitNoAgent || !strings.Contains(out.String(), dead) {
		t.Errorf("by the environment: %d, %s", code, &out)
	}
}

func TestNameResolvesToRunningInstance(t *testing.T) {
	c := &localCommand{}
	all := []client.Instance{
		{ID: "aaaaaa", Name: "g-1", State: fleet.Stopped},
		{ID: "bbbbbb", Name: "g-1", State: fleet.Online},
		{ID: "cccccc", Name: "g-2", State: fleet.Stopped},
		{ID: "dddddd", Name: "g-2", State: fleet.Crashed},
		{ID: "eeeeee", Name: "g-3", State: fleet.Crashed},
	}
	for word, want := range map[string]string{
		"g-1": "bbbbbb", "aaaaaa": "aaaaaa", "g-3": "eeeeee", "g-2": "several instances are named g-2", "g-4": "no instance g-4",
	} {
		id, err := c.find(all, word)
		if got := fmt.Sprint(id, " ", err); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}
