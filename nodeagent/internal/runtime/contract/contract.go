// Package contract tests what every runtime guarantees. A runtime's own tests call Run, and Main in
// their TestMain.
//
// Each guarantee is tested with control groups, if the machine has them, and without, where
// processes are found by session and environment. Tests of the console read what the server
// wrote to files, because runtimes differ in echoing input and in the line endings of logs.
package contract

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// Host is the environment of a runtime.
type Host struct {
	// Dir is the runtime's own directory, with a short path.
	Dir string `json:"dir"`
	// Tree holds control groups; nil to use none.
	Tree *cgroup.Tree `json:"-"`
	// Limiter enforces limits; nil to enforce none.
	Limiter *cgroup.Limiter `json:"-"`
	// View is what runs of other users see of the host.
	View confine.View `json:"view"`
	// Owner names the agent.
	Owner string `json:"owner"`
	// BootID identifies the kernel's boot; empty for the kernel's own.
	BootID string `json:"bootId"`
}

// Maker creates the runtime.
type Maker func(Host) (runtime.Runtime, error)

// agentVariable makes a test program an agent that can be killed.
const agentVariable = "CONTRACT_AGENT"

// errand is the task of such an agent.
type errand struct {
	Host    Host         `json:"host"`
	Group   string       `json:"group"`
	Limited bool         `json:"limited"`
	Spec    runtime.Spec `json:"spec"`
}

// Main runs the tests. In a process that a test started it is an agent instead, which starts a run,
// prints its identity and waits until it is killed.
func Main(m *testing.M, make Maker) int {
	asked := os.Getenv(agentVariable)
	if asked == "" {
		_ = os.Setenv("AGENT_SECRET", "do not leak") // no run may see it
		await.Parallel(6)
		return m.Run()
	}
	if err := serve(asked, make); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

func serve(asked string, make Maker) error {
	var e errand
	if err := json.Unmarshal([]byte(asked), &e); err != nil {
		return err
	}
	e.Host.Tree = cgroup.At(e.Group)
	if e.Limited {
		e.Host.Limiter = cgroup.NewLimiter(e.Host.Owner, e.Host.Tree)
	}
	r, err := make(e.Host)
	if err != nil {
		return err
	}
	p, err := r.Start(context.Background(), e.Spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(p.Identity())
}

// Run runs the tests.
func Run(t *testing.T, make Maker) {
	t.Helper()
	for name, test := range all() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			host := Host{Dir: dir, Owner: "test-" + filepath.Base(dir)}
			t.Run("by environment", func(t *testing.T) { test(&subject{T: t, host: host, maker: make}) })
			tree, err := cgroup.Open(host.Owner)
			if err != nil && os.Getenv("ORRERY_CI") != "" {
				t.Fatal(err)
			}
			if err != nil {
				t.Logf("no control groups here: %v", err)
				return
			}
			defer tree.Close()
			host.Tree = tree
			t.Run("by control group", func(t *testing.T) { test(&subject{T: t, host: host, maker: make}) })
		})
	}
}

// shortDir returns a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// subject is a runtime under test.
type subject struct {
	*testing.T
	host  Host
	maker Maker
}

func (s *subject) runtime() runtime.Runtime {
	s.Helper()
	r, err := s.maker(s.host)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

func (s *subject) spec(command string) runtime.Spec {
	s.Helper()
	dir := s.TempDir()
	id := "t" + strings.ToLower(rand.Text()[:10])
	return runtime.Spec{
		InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, "run"), TmpDir: filepath.Join(dir, "own", "tmp"), LogPath: filepath.Join(dir, "log"),
		Command: command, Env: []string{"PATH=" + os.Getenv("PATH"), "ORRERY_INSTANCE_ID=" + id},
	}
}

func (s *subject) start(r runtime.Runtime, spec runtime.Spec) runtime.Process {
	s.Helper()
	p, err := r.Start(s.Context(), spec)
	if err != nil {
		s.Fatal(err)
	}
	s.ended(p)
	return p
}

// ended kills a run when the test ends.
func (s *subject) ended(p runtime.Process) {
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		if err := p.Kill(ctx); err != nil {
			s.Errorf("killing at the end: %v", err)
		}
	})
}

func (s *subject) adopt(r runtime.Runtime, spec runtime.Spec, id runtime.Identity) runtime.Process {
	s.Helper()
	p, err := r.Adopt(s.Context(), spec, id)
	if err != nil {
		s.Fatal(err)
	}
	s.ended(p)
	return p
}

func (s *subject) exit(p runtime.Process) runtime.Exit {
	s.Helper()
	select {
	case <-p.Exited():
		return p.Exit()
	case <-time.After(await.Patience):
		s.Fatalf("did not exit: %+v", p.Identity())
		return runtime.Exit{}
	}
}

func (s *subject) write(p runtime.Process, line string) {
	s.Helper()
	if err := p.WriteLine(line); err != nil {
		s.Fatal(err)
	}
}

// said returns the content of a file with normalized line endings.
func said(path string) string {
	b, _ := os.ReadFile(path)
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// eventually waits until a file's content satisfies a condition.
func (s *subject) eventually(path string, ok func(string) bool) (text string) {
	s.Helper()
	await.That(s.T, "the content of "+path+"", func() string {
		text = said(path)
		return await.Unless(ok(text), "%q", text)
	})
	return text
}

// pid waits for a process id in a file of the instance, and returns the host's id of that process,
// which differs inside a container.
func (s *subject) pid(spec runtime.Spec, name string) int {
	s.Helper()
	text := s.eventually(filepath.Join(spec.Dir, name), func(s string) bool { return strings.HasSuffix(s, "\n") })
	var pid int
	await.That(s.T, "process "+text, func() string {
		pid = hostPID(strings.TrimSpace(text), spec.InstanceID)
		return await.Unless(pid > 0, "no process of %s", spec.InstanceID)
	})
	return pid
}

// hostPID returns the host's id of an instance's process; 0 if there is none.
func hostPID(inside, instance string) int {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		_, rest, _ := strings.Cut(string(status), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		numbers := strings.Fields(line)
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if len(numbers) > 0 && numbers[len(numbers)-1] == inside && strings.Contains("\x00"+string(environ), "\x00ORRERY_INSTANCE_ID="+instance+"\x00") {
			pid, _ := strconv.Atoi(numbers[0])
			return pid
		}
	}
	return 0
}

// startInAgentAndKillIt starts a run from another process, and kills that one with SIGKILL.
func (s *subject) startInAgentAndKillIt(spec runtime.Spec) runtime.Identity {
	s.Helper()
	b, err := json.Marshal(errand{Host: s.host, Group: s.host.Tree.Dir(), Limited: s.host.Limiter != nil, Spec: spec})
	if err != nil {
		s.Fatal(err)
	}
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), agentVariable+"="+string(b))
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		s.Fatal(err)
	}
	var id runtime.Identity
	if err := json.NewDecoder(out).Decode(&id); err != nil {
		s.Fatal(err)
	}
	if err := agent.Process.Kill(); err != nil {
		s.Fatal(err)
	}
	_ = agent.Wait()
	return id
}

// all returns the tests.
func all() map[string]func(*subject) {
	return map[string]func(*subject){
		"the exit of a run is known":                                howARunEnds,
		"the server's own pid is known and killing it ends the run": ownPID,
		"the rest is killed, whichever process ends first":          theRestIsGone,
		"a process is found during its exec":                        anotherProgram,
		"a signal to the group keeps the server's exit code":        groupSignal,
		"a stopped wrapper does not hide its server's end":          stoppedWrapper,
		"an ended run does not affect the next one":                 nextOne,
		"a missing directory is invalid":                            missingDirectory,
		"a lock is held until the last process ends":                lockIsHeld,
		"parallel runs are independent":                             parallelRuns,
		"similar ids are not confused":                              alikeIDs,
		"an exit code survives the agent's death":                   codeWithoutAgent,
		"a living run is adopted and its input stays open":          adoptedAlive,
		"no output is lost while the agent is down":                 downLosesNothing,
		"a reused pid is recognised":                                recycledPID,
		"a reused server pid in the file is recognised":             recycledNote,
		"a reboot is recognised and equal pids are not touched":     reboot,
		"a run without identity is found by its marks":              foundByMarks,
		"a run in another directory is not found":                   notElsewhere,
		"another agent's instance with the same id is not touched":  leftAlone,
		"lines arrive verbatim and in order":                        verbatim,
		"concurrent lines arrive complete":                          wholeLines,
		"a line that ends the server is written":                    lastLine,
		"a server that does not read is an error":                   unread,
		"the environment is exactly as given":                       environment,
		"variables with unusual names arrive":                       oddVariables,
		"output is complete when the run ends at once":              lastWords,
		"output is appended to that of an earlier run":              appended,
		"no other process shows the environment":                    secret,
	}
}
