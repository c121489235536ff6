package nodeagent_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// limits are the limits in the node's record.
func (s *site) limits() fleet.NodeLimits {
	s.t.Helper()
	n, err := store.Get(s.t.Context(), s.store, keys.Node(node))
	if err != nil {
		s.t.Fatal(err)
	}
	return n.Limits
}

func TestNodeRecordListsEnforcedLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	l := s.limits()
	if l.By == "" || (l.Why == "") != (len(l.Held) == 4) {
		t.Errorf("%+v", l)
	}
	plan := basic("exec cat")
	plan.Limits = isolation.Limits{IOWeight: 50, Processes: 50}
	st := s.online(s.id(1), plan)
	for limit, field := range map[string]string{fleet.LimitIO: "limits.ioWeight", fleet.LimitProcesses: "limits.processes"} {
		if said := strings.Contains(st.Message, field+" is not enforced on this node"); said == l.Holds(limit) {
			t.Errorf("%s, of %+v: %q", field, l, st.Message)
		}
	}
}

func TestOutOfMemoryIsReportedWithLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	if !s.limits().Holds(fleet.LimitMemory) {
		t.Logf("not held here: %s", s.limits().Why)
		return
	}
	neighbour, id := s.id(1), s.id(2)
	s.online(neighbour, basic("exec cat"))
	plan := basic("head -c 300m /dev/zero | tail >/dev/null")
	plan.OnCrash, plan.Resources.MemoryMiB = fleet.CrashStop, 64
	s.place(id, 1, plan, 0)
	st := s.awaitState(id, 1, fleet.Crashed)
	if st.Reason != fleet.ReasonOutOfMemory || st.Exit == nil || !st.Exit.OOM || st.Exit.LimitMiB != 64 || !strings.Contains(st.Message, "64 MiB") {
		t.Errorf("%+v, %+v", st, st.Exit)
	}
	if c := s.crashes(1)[0]; c.Category != reports.CrashOutOfMemory {
		t.Errorf("%+v", c)
	}
	if st := s.status(neighbour); st.State != fleet.Online {
		t.Errorf("its neighbour: %+v", st)
	}
}

func TestDiskLimitEndsInstance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	neighbour, id := s.id(1), s.id(2)
	plan := basic("exec cat")
	plan.Limits.DiskMiB = 4
	s.online(neighbour, plan)
	plan.Command, plan.OnCrash = "head -c 8m /dev/zero >world; exec cat", fleet.CrashStop
	s.place(id, 1, plan, 0)
	st := s.awaitState(id, 1, fleet.Crashed)
	// The agent may measure the directory before all 8 MiB are written.
	if st.Reason != fleet.ReasonDiskLimit || !regexp.MustCompile(`holds [4-8] MiB, its group allows 4`).MatchString(st.Message) {
		t.Errorf("%+v", st)
	}
	if st := s.status(neighbour); st.State != fleet.Online {
		t.Errorf("its neighbour: %+v", st)
	}
}

func TestConfinedInstanceHasUserAndDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("only an agent that is root runs instances as others")
		return
	}
	s := newSite(t)
	s.start(taking)
	id := s.id(1)
	plan := basic(`id -u >who; echo "$USER" >>who; echo x >>a.jar || echo refused >>who; exec cat`)
	plan.Layers = []fleet.PlanLayer{s.library.add("a", map[string]string{"a.jar": "content"})}
	plan.Confine = isolation.Confine{User: "nobody", NoNewPrivileges: true, PrivateTmp: true, ReadOnlyTemplates: true}
	open(t, s.dir)
	s.online(id, plan)
	s.await(id, "what it says", func(fleet.Status) bool { return s.running(id, "who") == "65534\nnobody\nrefused\n" })
	plan.Confine = isolation.Confine{User: "no-such-user"}
	s.place(s.id(2), 1, plan, 0)
	if st := s.awaitState(s.id(2), 1, fleet.Failed); !strings.Contains(st.Message, "no-such-user") {
		t.Errorf("%+v", st)
	}
}

func TestConfinedInstanceCannotReadOtherGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("only an agent that is root runs instances as others")
		return
	}
	s := newSite(t)
	s.start(taking)
	open(t, s.dir)
	s.keepSecret(t, "db", "sesame")
	for n, user := range []string{"", "61235"} {
		plan := s.secretive(t, map[string]string{"FILE": "secret:db", "ENV": "secret:db", "COMMAND": "secret:db"})
		plan.Confine.User = user
		s.online(s.id(n+1), plan)
		s.await(s.id(n+1), "its secret", func(fleet.Status) bool { return strings.Contains(s.running(s.id(n+1), "got"), "sesame") })
	}
	var files []string
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	plan := basic("")
	plan.Group, plan.Confine.User = "other", "61234"
	plan.Command = "for f in " + strings.Join(files, " ") + `; do cat "$f" >/dev/null 2>&1 && echo "$f" >>got; done; echo all >>got; exec cat`
	s.online(s.id(3), plan)
	s.await(s.id(3), "what it reads", func(fleet.Status) bool { return strings.HasSuffix(s.running(s.id(3), "got"), "all\n") })
	if got := s.running(s.id(3), "got"); got != "all\n" {
		t.Errorf("of %d files it reads:\n%s", len(files), got)
	}
}

func TestConfinedInstanceReachesItsDirectoryBelowClosedParents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	above := filepath.Dir(s.dir)
	if err := os.Chmod(above, 0o700); err != nil {
		t.Fatal(err)
	}
	plan := basic("pwd >at; exec cat")
	plan.Confine.User = "nobody"
	s.place(s.id(1), 1, plan, freePort(t))
	if os.Geteuid() != 0 { // only root may run instances as another user
		if st := s.awaitState(s.id(1), 1, fleet.Failed); !strings.Contains(st.Message, "root") {
			t.Errorf("%+v", st)
		}
		return
	}
	s.awaitState(s.id(1), 1, fleet.Online)
	want := filepath.Join(s.dir, "running", string(s.id(1))) + "\n"
	s.await(s.id(1), "its directory", func(fleet.Status) bool { return s.running(s.id(1), "at") == want })
	for _, dir := range []string{above, s.dir} {
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm()&0o077 != 0 && dir == above {
			t.Errorf("%s was opened: %v, %v", dir, fi, err)
		}
	}
}

// open makes the directories that lead to a test's own accessible to others.
func open(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullJavaHeapRaisesMemoryLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("exec cat # java -Xmx256M -jar server.jar")
	if st := s.online(s.id(1), plan); !strings.Contains(st.Message, "the limit is 3") {
		t.Errorf("%q", st.Message)
	}
	plan.Command = "exec cat # java -Xmx1G -jar server.jar"
	if st := s.online(s.id(2), plan); !strings.Contains(st.Message, "beyond its limit of 256 MiB") {
		t.Errorf("%q", st.Message)
	}
}
