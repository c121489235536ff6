package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// hostileServer is a server that tries to reach what is not its own, and writes a line for each way into
// its directory.
const hostileServer = `
try() { way=$1; shift; if "$@" >/dev/null 2>&1 </dev/null; then echo "REACHED $way"; else echo "refused $way"; fi; }
{
try "own directory" sh -c 'echo x >"$HOME/own" && cat "$HOME/own"'
for path in $READS; do try "read $path" sh -c "cat '$path' || ls '$path'"; done
for path in $WRITES; do try "write $path" sh -c "echo x >>'$path' || echo x >'$path/planted'"; done
for pid in $PIDS; do
	for file in environ cmdline cwd/ root/etc/passwd fd/ maps; do try "see /proc/$pid/$file" ls "/proc/$pid/$file"; done
	try "read /proc/$pid/environ" cat "/proc/$pid/environ"
	try "signal $pid" kill -0 "$pid"
done
try "agent's socket" "$AGENT" local status -data "$DATA"
try "tmux of the agent" tmux -S "$DATA/tmux/tmux" list-sessions
try "root by su" su -c true
echo "user $(id -u) $(id -g) $(id -G)"
grep -e NoNewPrivs -e CapEff -e CapPrm -e CapAmb /proc/self/status
echo "sees $(stat -c %u /proc/[0-9]* 2>/dev/null | sort -u)"
echo done
} >report
exec cat
`

// A hostile server on a node is refused everywhere. The node's data is below a directory that only root may
// enter, so that only its own mounts let the server reach its directory.
func TestAHostileServerReachesOnlyItsOwnDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 && os.Getenv("ORRERY_CI") == "" {
		t.Skip("only an agent that is root isolates its instances")
	}
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	closed, err := os.MkdirTemp("", "orrery-e2e-closed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(closed) })
	data := filepath.Join(closed, "data")
	n := cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "shared", Flags: []string{"--data", data, "--require-tenants"}})
	where := fields{"minInstances": 1, "nodes": []string{"shared"}}

	cluster.WriteTemplate(t, c, "demo/neighbour", map[string]string{"plugins/secret.yml": "password: sesame\n"})
	neighbour := catGroup("neighbour", where)
	neighbour["templates"], neighbour["env"] = []string{"demo/neighbour"}, fields{"PASSWORD": "sesame"}
	createGroup(t, admin, neighbour)
	world := catGroup("world", where)
	world["static"], world["command"] = true, "echo data >level; exec cat"
	createGroup(t, admin, world)
	next, kept := admin.AwaitRunning("neighbour", 1)[0], admin.AwaitRunning("world", 1)[0]
	next, kept = withPID(t, admin, next.UID), withPID(t, admin, kept.UID)

	secret := filepath.Join(data, "running", next.UID, "plugins", "secret.yml")
	level := filepath.Join(data, "static", "world", kept.ID, "level")
	journal := filepath.Join(data, "journal", next.UID+".json")
	reads := []string{closed, data, secret, level, journal, filepath.Join(data, "journal"), filepath.Join(data, "blobs"), filepath.Join(data, "uuid"), filepath.Join(data, "run", next.UID), filepath.Join(data, "logs", next.UID+".log"), c.SecretFile(), c.SealKeyFile()}
	await.That(t, "files to reach", func() string { // else a refusal would prove nothing
		missing := slices.DeleteFunc(slices.Clone(reads), func(path string) bool { _, err := os.Stat(path); return err == nil })
		return await.Unless(len(missing) == 0, "%v", missing)
	})
	pids := []int{n.PID(), next.PID, kept.PID, 1, os.Getpid()}
	agent := filepath.Join(closed, "..", filepath.Base(closed)+"-agent")
	if err := copyProgram(cluster.Program(t, "./nodeagent/cmd/nodeagent"), agent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(agent) })
	env := fields{
		"READS": strings.Join(reads, " "), "WRITES": strings.Join([]string{secret, level, journal, filepath.Dir(secret), data, filepath.Join(data, "running"), filepath.Join(data, "static")}, " "),
		"PIDS": strings.Trim(fmt.Sprint(pids), "[]"), "AGENT": agent, "DATA": data,
	}
	users := map[string]bool{}
	for _, runtime := range []string{"process", "tmux"} {
		t.Run(runtime, func(t *testing.T) {
			name := "hostile-" + runtime
			cluster.WriteTemplate(t, c, "demo/"+name, map[string]string{"hostile.sh": hostileServer})
			hostile := catGroup(name, where)
			hostile["templates"], hostile["env"], hostile["runtime"], hostile["command"] = []string{"demo/" + name}, env, runtime, "sh ./hostile.sh"
			createGroup(t, admin.On(t), hostile)
			id := withPID(t, admin.On(t), admin.On(t).AwaitRunning(name, 1)[0].UID).UID
			dir := filepath.Join(data, "running", id)
			var report string
			await.That(t, "its report", func() string {
				b, err := os.ReadFile(filepath.Join(dir, "report"))
				report = string(b)
				return await.Unless(strings.Contains(report, "\ndone\n"), "%s %v", report, err)
			})
			fi, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			st := fi.Sys().(*syscall.Stat_t)
			uid := strconv.Itoa(int(st.Uid))
			if st.Uid < 1_900_000_000 || st.Gid != st.Uid || fi.Mode().Perm() != 0o750 || users[uid] {
				t.Errorf("its directory belongs to %d:%d with mode %v", st.Uid, st.Gid, fi.Mode())
			}
			users[uid] = true
			for _, want := range []string{
				"REACHED own directory\n", "user " + uid + " " + uid + " " + uid + "\n", "NoNewPrivs:\t1\n", "sees " + uid + "\n",
				"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
			} {
				if !strings.Contains(report, want) {
					t.Errorf("the report lacks %q", want)
				}
			}
			if strings.Count(report, "REACHED ") != 1 || strings.Count(report, "refused ") < len(reads)+7*len(pids) || t.Failed() {
				t.Errorf("it reports:\n%s", report)
			}
		})
	}
	if fi, err := os.Stat(closed); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the closed directory was opened: %v, %v", fi, err)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "password: sesame\n" {
		t.Errorf("the neighbour's file has %q, %v", b, err)
	}
}

// withPID waits until an instance's process is known.
func withPID(t *testing.T, admin *cluster.Client, uid string) (i cluster.Instance) {
	t.Helper()
	await.That(t, "its process", func() string {
		i = admin.Instance(uid)
		return await.Unless(i.PID > 0, "%+v", i)
	})
	return i
}

// copyProgram copies a program to a path where all users may run it.
func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
