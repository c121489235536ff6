package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// untilTold is the beginning of a command: it waits for a file.
const untilTold = "until [ -e go ]; do sleep 0.01; done; "

func (s *subject) tell(spec runtime.Spec) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(spec.Dir, "go"), nil, 0o600); err != nil {
		s.Fatal(err)
	}
}

func (s *subject) awaitGone(id runtime.ProcessID) {
	s.Helper()
	await.That(s.T, "its end", func() string { return await.Unless(!proctest.Lives(id.PID), "process %d lives", id.PID) })
}

func codeWithoutAgent(s *subject) {
	spec := s.spec(untilTold + "exit 7")
	id := s.startInAgentAndKillIt(spec)
	if !proctest.Lives(id.Server.PID) {
		s.Fatal("the server ended with its agent")
	}
	s.tell(spec)
	s.awaitGone(id.Shell)
	if e := s.exit(s.adopt(s.runtime(), spec, id)); e.Code != 7 || !e.Known || e.Signal != "" || e.Hangup {
		s.Errorf("exit %+v, want code 7", e)
	}
}

func adoptedAlive(s *subject) {
	spec := s.spec("cat >got; exit 9")
	id := s.startInAgentAndKillIt(spec)
	p := s.adopt(s.runtime(), spec, id)
	if p.Identity() != id {
		s.Errorf("identity %+v became %+v", id, p.Identity())
	}
	s.write(p, "still here")
	s.eventually(filepath.Join(spec.Dir, "got"), func(s string) bool { return s == "still here\n" })
	if err := p.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	s.exit(p)
}

func downLosesNothing(s *subject) {
	const lines = 2000
	spec := s.spec(untilTold + fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; done; exit 3", lines))
	id := s.startInAgentAndKillIt(spec)
	s.tell(spec)
	s.awaitGone(id.Shell)
	if e := s.exit(s.adopt(s.runtime(), spec, id)); e.Code != 3 || !e.Known {
		s.Errorf("exit %+v", e)
	}
	if got, want := said(spec.LogPath), numbered(lines); got != want {
		s.Errorf("%d bytes of output, want %d", len(got), len(want))
	}
}

func numbered(lines int) string {
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	return want.String()
}

func recycledPID(s *subject) {
	r := s.runtime()
	pid := proctest.Bystander(s.T)
	live := s.start(r, s.spec("sleep 1000")).Identity()
	fake := runtime.ProcessID{PID: pid, Start: 1}
	p := s.adopt(r, s.spec("sleep 1000"), runtime.Identity{BootID: live.BootID, Shell: fake, Server: fake})
	if e := s.exit(p); e.Known {
		s.Errorf("exit %+v of another process", e)
	}
	if !proctest.Lives(pid) {
		s.Error("an unrelated process was killed")
	}
}

func recycledNote(s *subject) {
	r, spec := s.runtime(), s.spec("sleep 1000")
	id := s.start(r, spec).Identity()
	pid := proctest.Bystander(s.T)
	if err := os.WriteFile(filepath.Join(spec.RunDir, "pid"), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	id.Server = runtime.ProcessID{}
	p := s.adopt(r, spec, id)
	if p.Identity().Server.PID != 0 {
		s.Fatalf("identity %+v", p.Identity())
	}
	if err := p.Signal(syscall.SIGKILL); err != nil || !proctest.Lives(pid) {
		s.Errorf("an unrelated process was signalled: %v", err)
	}
}

func reboot(s *subject) {
	s.host.BootID = "second"
	pid := proctest.Bystander(s.T)
	same := runtime.ProcessID{PID: pid, Start: proctest.StartTime(s.T, pid)}
	p := s.adopt(s.runtime(), s.spec("true"), runtime.Identity{BootID: "first", Shell: same, Server: same})
	if e := s.exit(p); !e.Rebooted || p.Running() {
		s.Errorf("exit %+v, running %v", e, p.Running())
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		s.Error(err)
	}
	if err := p.Kill(s.Context()); err != nil {
		s.Error(err)
	}
	if !proctest.Lives(pid) {
		s.Error("an unrelated process was killed")
	}
}

func foundByMarks(s *subject) {
	r := s.runtime()
	spec := s.spec("setsid sh -c 'echo $$ >daemon; exec sleep 1000' & cat >got")
	p := s.start(r, spec)
	s.pid(spec, "daemon")
	root := filepath.Dir(spec.Dir)
	found, ok := s.find(r, root)[spec.InstanceID]
	if !ok || found.Identity != p.Identity() || found.Processes < 3 {
		s.Fatalf("found %+v, want %+v", found, p.Identity())
	}
	if !slices.Contains(found.Env, "ORRERY_INSTANCE_ID="+spec.InstanceID) {
		s.Errorf("its environment %q", found.Env)
	}
	again := s.adopt(r, spec, found.Identity)
	s.write(again, "still here")
	s.eventually(filepath.Join(spec.Dir, "got"), func(s string) bool { return s == "still here\n" })
	if err := again.Kill(s.Context()); err != nil || again.Running() {
		s.Error(err, again.Running())
	}
	if _, ok := s.find(r, root)[spec.InstanceID]; ok {
		s.Error("found after its end")
	}
}

func notElsewhere(s *subject) {
	if s.host.Tree != nil { // then it is one of ours wherever it works
		return
	}
	r := s.runtime()
	s.start(r, s.spec("sleep 1000"))
	if found := s.find(r, s.TempDir()); len(found) > 0 {
		s.Errorf("found %+v", found)
	}
}

func leftAlone(s *subject) {
	spec := s.spec("sleep 1000")
	p := s.start(s.runtime(), spec)
	s.host = Host{Dir: shortDir(s.T), Owner: "ours"}
	ours := s.runtime()
	elsewhere := spec
	elsewhere.RunDir = s.TempDir()
	s.exit(s.adopt(ours, elsewhere, runtime.Identity{BootID: p.Identity().BootID}))
	if len(s.find(ours, filepath.Dir(spec.Dir))) != 0 || !proctest.Lives(p.Identity().Server.PID) {
		s.Error("it was taken for this agent's")
	}
}

func (s *subject) find(r runtime.Runtime, root string) map[string]runtime.Found {
	s.Helper()
	found, err := r.Find(root)
	if err != nil {
		s.Fatal(err)
	}
	return found
}
