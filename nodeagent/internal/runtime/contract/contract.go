// Package contract is what every runtime promises, as tests: a runtime's own tests
// run all of it with Run, and Main as their TestMain.
//
// Each promise is kept twice: where the machine has control groups, and where an
// instance's processes are told by session and environment. What reads a console is
// asked by what it leaves in files: whether input is echoed is the runtime's affair,
// and so is whether a line of the log ends like a terminal's.
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
	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Host is what a runtime is made for.
type Host struct {
	// Dir is short and the runtime's own.
	Dir string `json:"dir"`
	// Tree holds control groups; nil where they are not to be used.
	Tree *cgroup.Tree `json:"-"`
	// Limiter holds limits; nil where they are not asked for.
	Limiter *cgroup.Limiter `json:"-"`
	// Confine is the command that confines what it becomes.
	Confine []string `json:"confine"`
	// Owner names the agent.
	Owner string `json:"owner"`
	// BootID identifies the running kernel; empty for the kernel's own.
	BootID string `json:"bootId"`
}

// Maker makes the runtime.
type Maker func(Host) (runtime.Runtime, error)

// agentVariable has a test program be an agent that can be killed.
const agentVariable = "CONTRACT_AGENT"

// errand is what such an agent is asked.
type errand struct {
	Host    Host         `json:"host"`
	Group   string       `json:"group"`
	Limited bool         `json:"limited"`
	Spec    runtime.Spec `json:"spec"`
}

// Main runs the tests. Asked by one of them it is an agent instead: it starts a run,
// prints its identity and waits for its end in vain. Or it confines itself.
func Main(m *testing.M, make Maker) int {
	if len(os.Args) > 1 && os.Args[1] == confineCommand {
		return confine.Main(os.Args[2:], os.Stderr)
	}
	asked := os.Getenv(agentVariable)
	if asked == "" {
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

// Run runs the suite.
func Run(t *testing.T, make Maker) {
	t.Helper()
	for name, test := range all() {
		t.Run(name, func(t *testing.T) {
			host := Host{Dir: shortDir(t), Owner: "test-" + strconv.Itoa(os.Getpid())}
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

// shortDir is a directory with room for the path of a socket.
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

// ended has a run be killed when the test is over.
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

// said is what a file says, with lines that end as in a file.
func said(path string) string {
	b, _ := os.ReadFile(path)
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// eventually waits for what a file says to satisfy a condition.
func (s *subject) eventually(path string, ok func(string) bool) (text string) {
	s.Helper()
	await.That(s.T, "what "+path+" has to say", func() string {
		text = said(path)
		return await.Unless(ok(text), "%q", text)
	})
	return text
}

// pid waits for a process id in a file of the instance, and tells the host's own number
// of it: in a container processes count from one.
func (s *subject) pid(spec runtime.Spec, name string) int {
	s.Helper()
	text := s.eventually(filepath.Join(spec.Dir, name), func(s string) bool { return strings.HasSuffix(s, "\n") })
	var pid int
	await.That(s.T, "process "+text, func() string {
		pid = hostPID(strings.TrimSpace(text), spec.InstanceID)
		return await.Unless(pid > 0, "there is none of %s", spec.InstanceID)
	})
	return pid
}

// hostPID is the host's number of an instance's process; 0 when there is none.
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

// startInAgentAndKillIt starts a run from another process and kills that with SIGKILL.
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

// all are the promises.
func all() map[string]func(*subject) {
	return map[string]func(*subject){
		"how a run ends is known":                                          howARunEnds,
		"the server's own pid is known and killing it ends the run":        ownPID,
		"whichever dies first the rest is gone":                            theRestIsGone,
		"a process that becomes another program is found":                  anotherProgram,
		"a signal to the whole group keeps the server's code":              groupSignal,
		"a stopped wrapper does not hide its server's end":                 stoppedWrapper,
		"a run that has ended does nothing to the next one":                nextOne,
		"a missing directory is invalid":                                   missingDirectory,
		"a lock is held as long as one of the run lives":                   lockIsHeld,
		"parallel runs do not meet":                                        parallelRuns,
		"ids that are alike never touch each other":                        alikeIDs,
		"an exit code is known though the agent was killed":                codeWithoutAgent,
		"a run is adopted alive and its input never ended":                 adoptedAlive,
		"an agent that is down loses no output":                            downLosesNothing,
		"a recycled pid is not mistaken":                                   recycledPID,
		"a recycled server's pid is not taken from the note":               recycledNote,
		"a reboot is told apart and same numbers are left alone":           reboot,
		"a run whose identity was lost is found by its marks":              foundByMarks,
		"a run of another directory is not found":                          notElsewhere,
		"another agent's instance of the same id is left alone":            leftAlone,
		"lines arrive verbatim and in order":                               verbatim,
		"lines typed by many arrive whole":                                 wholeLines,
		"a line that ends its server is typed":                             lastLine,
		"a server that does not read is an error":                          unread,
		"the environment is only and completely what was given":            environment,
		"variables a shell would drop arrive":                              oddVariables,
		"output is complete and in order though the run ends at once":      lastWords,
		"output is added to what an earlier run said":                      appended,
		"an instance's environment is in nobody's arguments but its own's": secret,
	}
}
