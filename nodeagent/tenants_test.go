package nodeagent_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
)

// uids is a range with 50 ids for static groups, and 50 for other instances.
const uids, firstUID, firstDynamicUID = "1900000000-1900000099", 1900000000, 1900000050

func tenant(c *nodeagent.Config) { c.InstanceUIDs, c.StopInstancesOnExit = uids, true }

// tenantsOnly reports whether the test cannot run, because only an agent that is root has tenants.
func tenantsOnly(t *testing.T) (skip bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("only an agent that is root gives instances users of their own")
	}
	return os.Geteuid() != 0
}

// number gives a static group its number, as the enforcer does.
func (s *site) number(group fleet.GroupName, n int) {
	s.t.Helper()
	if _, err := s.store.Commit(s.t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Tenant(group), cluster.Tenant{Group: group, Number: n, At: time.Now()})}}); err != nil {
		s.t.Fatal(err)
	}
}

// owner returns the owner, group and mode of a path.
func owner(t testing.TB, path string) (uid, gid int, mode os.FileMode) {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := fi.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid), fi.Mode().Perm()
}

// userOf returns the user of an instance's process.
func (s *site) userOf(id fleet.InstanceID) int {
	s.t.Helper()
	uid, _, _ := owner(s.t, "/proc/"+strconv.Itoa(s.status(id).PID))
	return uid
}

// placeIn places an instance of a group with its own static directory.
func (s *site) placeIn(group fleet.GroupName, id fleet.InstanceID) {
	s.t.Helper()
	p := static(group, "exec cat")
	s.write(keys.Plan(p.Digest()), fleet.StoredPlan{Plan: p, TouchedAt: time.Now()})
	s.write(keys.Placement(node, id), fleet.Placement{Instance: id, Name: string(group) + "-1", Group: group, Node: node, Generation: 1, Plan: p.Digest(), PlacedAt: time.Now()})
}

func static(group fleet.GroupName, command string) fleet.Plan {
	p := basic(command)
	p.Group, p.Static = group, true
	return p
}

func TestEachInstanceHasItsOwnUserAndDirectory(t *testing.T) {
	t.Parallel()
	if tenantsOnly(t) {
		return
	}
	s := newSite(t)
	s.number("lobby", 3)
	s.number("world", 50)
	s.start(tenant)
	command := `{ id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; echo "$USER"; } >who; exec cat`
	seen := map[int]bool{}
	for n, runtime := range []fleet.RuntimeName{fleet.RuntimeProcess, fleet.RuntimeTmux, fleet.RuntimeProcess} {
		plan, id := basic(command), s.id(n+1)
		plan.Runtime = runtime
		plan.Layers = []fleet.PlanLayer{s.library.add("a", map[string]string{"config/mine": "content"})}
		s.online(id, plan)
		dir := filepath.Join(s.dir, "running", string(id))
		uid, gid, mode := owner(t, dir)
		if uid != gid || mode != 0o750 || uid < firstDynamicUID || uid > firstUID+99 || seen[uid] {
			t.Errorf("%s belongs to %d:%d with mode %v; others have %v", dir, uid, gid, mode, seen)
		}
		seen[uid] = true
		if uid, gid, _ := owner(t, filepath.Join(dir, "config", "mine")); uid != gid || !seen[uid] {
			t.Errorf("a file belongs to %d:%d", uid, gid)
		}
		want := strings.Repeat(strconv.Itoa(uid)+"\n", 3) + "NoNewPrivs:\t1\n" + strconv.Itoa(uid) + "\n"
		s.await(id, "who it is", func(fleet.Status) bool { return s.running(id, "who") == want })
	}
	for group, want := range map[fleet.GroupName]int{"lobby": firstUID + 2, "world": firstUID + 49} {
		id := s.id(10 + want - firstUID)
		s.placeIn(group, id)
		s.awaitState(id, 1, fleet.Online)
		if got := s.userOf(id); got != want {
			t.Errorf("group %s runs as %d, want %d", group, got, want)
		}
	}
}

func TestAnIDSurvivesACrashOfTheAgent(t *testing.T) {
	t.Parallel()
	if tenantsOnly(t) {
		return
	}
	s := newSite(t)
	_, kill := s.spawnAt(s.etcd.Endpoint, "TEST_UIDS="+uids)
	plan := basic("exec cat")
	s.place(s.id(1), 1, plan, freePort(t))
	s.awaitState(s.id(1), 1, fleet.Online)
	first := s.userOf(s.id(1))
	kill()
	if err := os.RemoveAll(filepath.Join(s.dir, "journal", string(s.id(1))+".json")); err != nil { // a lost entry
		t.Fatal(err)
	}
	s.start(tenant)
	s.place(s.id(2), 1, plan, freePort(t))
	s.awaitState(s.id(2), 1, fleet.Online)
	if second := s.userOf(s.id(2)); second == first || s.userOf(s.id(1)) != first {
		t.Errorf("the first runs as %d, before as %d; the second as %d", s.userOf(s.id(1)), first, second)
	}
	s.order(s.id(1), 1, fleet.OrderStop)
	s.awaitState(s.id(1), 1, fleet.Stopped)
	s.place(s.id(1), 2, plan, freePort(t))
	s.awaitState(s.id(1), 2, fleet.Online)
	if again := s.userOf(s.id(1)); again == s.userOf(s.id(2)) || again < firstDynamicUID {
		t.Errorf("its next generation runs as %d", again)
	}
}

func TestDirectoriesAreGivenToTheirUsersAtTheNextStart(t *testing.T) {
	t.Parallel()
	if tenantsOnly(t) {
		return
	}
	s := newSite(t)
	s.number("lobby", 1)
	s.start(nil)
	plan := static("lobby", "mkdir -p world && echo data >>world/level; ln -f world/level world/backup; exec cat")
	s.place(s.id(1), 1, plan, freePort(t))
	s.awaitState(s.id(1), 1, fleet.Online)
	dir := filepath.Join(s.dir, "static", "lobby", "lobby-1")
	level := filepath.Join(dir, "world")
	s.await(s.id(1), "its world", func(fleet.Status) bool { return exists(filepath.Join(level, "backup")) })
	s.stop()
	var log proctest.Buffer
	s.start(func(c *nodeagent.Config) {
		tenant(c)
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	s.awaitState(s.id(1), 1, fleet.Online)
	if uid, _, _ := owner(t, dir); s.userOf(s.id(1)) != 0 || uid != 0 {
		t.Error("an adopted instance lost its user or directory")
	}
	s.order(s.id(1), 1, fleet.OrderStop)
	s.awaitState(s.id(1), 1, fleet.Stopped)
	s.place(s.id(1), 2, plan, freePort(t))
	s.awaitState(s.id(1), 2, fleet.Online)
	for path, want := range map[string]int{dir: firstUID, level: firstUID, filepath.Join(level, "level"): 0} { // several names: another user may own the file by another
		if uid, _, _ := owner(t, path); uid != want {
			t.Errorf("%s belongs to %d, want %d", path, uid, want)
		}
	}
	if got := s.userOf(s.id(1)); got != firstUID {
		t.Errorf("it runs as %d", got)
	}
	want := fmt.Sprintf("directory=%s instance=%s from=0:0 to=%d:%d files=", dir, s.id(1), firstUID, firstUID)
	if said := log.String(); strings.Count(said, want) != 1 || !strings.Contains(said, "leftHardLinks=2") {
		t.Errorf("the log lacks %q:\n%s", want, said)
	}
}

func TestAnInstanceWaitsForAFreeID(t *testing.T) {
	t.Parallel()
	if tenantsOnly(t) {
		return
	}
	s := newSite(t)
	s.start(func(c *nodeagent.Config) { c.InstanceUIDs, c.StopInstancesOnExit = "1900000200-1900000201", true })
	plan := basic("exec cat")
	s.place(s.id(1), 1, plan, freePort(t))
	s.awaitState(s.id(1), 1, fleet.Online)
	s.place(s.id(2), 1, plan, freePort(t))
	st := s.await(s.id(2), "its reason", func(st fleet.Status) bool { return st.Reason == fleet.ReasonNoInstanceUser })
	if st.State != fleet.Preparing || !strings.Contains(st.Message, "instance-uids 1900000200-1900000201 of node-1") {
		t.Errorf("%+v", st)
	}
	s.order(s.id(1), 1, fleet.OrderStop)
	s.awaitState(s.id(2), 1, fleet.Online)
	if uid := s.userOf(s.id(2)); uid != 1900000201 {
		t.Errorf("it runs as %d", uid)
	}
}

func TestAStaticGroupWithoutANumberWaitsAndOneBeyondTheRangeFails(t *testing.T) {
	t.Parallel()
	if tenantsOnly(t) {
		return
	}
	s := newSite(t)
	s.number("far", 51)
	s.start(tenant)
	s.placeIn("lobby", s.id(1))
	s.await(s.id(1), "its reason", func(st fleet.Status) bool {
		return st.Reason == fleet.ReasonNoInstanceUser && st.State == fleet.Preparing && strings.Contains(st.Message, "enforcer")
	})
	s.number("lobby", 50)
	s.awaitState(s.id(1), 1, fleet.Online)
	s.placeIn("far", s.id(2))
	if st := s.awaitState(s.id(2), 1, fleet.Failed); st.Reason != fleet.ReasonNoInstanceUser || !strings.Contains(st.Message, "group far is static group number 51") {
		t.Errorf("%+v", st)
	}
}

func TestUnusableTenantSettingsAreRefused(t *testing.T) {
	t.Parallel()
	if tenantsOnly(t) {
		return
	}
	s := newSite(t)
	for _, c := range []struct {
		field, says string
		change      func(*nodeagent.Config)
	}{
		{"instance-uids", "is no range", func(c *nodeagent.Config) { c.InstanceUIDs = "1900000000" }},
		{"instance-uids", "nobody in /etc/passwd", func(c *nodeagent.Config) { c.InstanceUIDs = "65000-66000" }},
		{"instance-uids", "instance-user", func(c *nodeagent.Config) { c.InstanceUIDs, c.InstanceUser = uids, "nobody" }},
		{"require-tenants", "instance-user", func(c *nodeagent.Config) { c.RequireTenants, c.InstanceUser = true, "nobody" }},
		{"require-tenants", "root", func(c *nodeagent.Config) { c.RequireTenants = true }},
	} {
		cfg := s.config()
		c.change(&cfg)
		if _, err := nodeagent.New(cfg); errs.FieldOf(err) != c.field || !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), c.says) {
			t.Errorf("%v, want %s to say %q", err, c.field, c.says)
		}
	}
}

func TestTheNodesRecordSaysWhetherInstancesAreIsolated(t *testing.T) {
	t.Parallel()
	if tenantsOnly(t) {
		return
	}
	s := newSite(t)
	for _, c := range []struct {
		isolated bool
		why      string
		change   func(*nodeagent.Config)
	}{
		{true, "", tenant},
		{false, "root", nil},
		{false, "as nobody", func(c *nodeagent.Config) { c.InstanceUser = "nobody" }},
	} {
		s.start(c.change)
		n, err := store.Get(t.Context(), s.store, keys.Node(node))
		if err != nil || n.Tenants == nil || n.Tenants.Isolated != c.isolated || !strings.Contains(n.Tenants.Why, c.why) || c.why == "" && n.Tenants.Why != "" {
			t.Errorf("%+v, %v; want %v because of %q", n.Tenants, err, c.isolated, c.why)
		}
		s.stop()
	}
}
