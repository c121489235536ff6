package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

func TestALimitIsWrittenAsEachVersionHasIt(t *testing.T) {
	want := runtime.Limits{MemoryMiB: 512, CPU: 150, CPUWeight: 50, Processes: 64, IOWeight: 4000}
	for name, c := range map[string]struct {
		dir  string
		want map[string]string
	}{
		"version 2": {want: map[string]string{
			"memory.max": "536870912", "memory.swap.max": "0",
			"cpu.max": "150000 100000", "cpu.weight": "50", "pids.max": "65", "io.weight": "default 4000", "io.bfq.weight": "1000",
		}},
		"version 1": {dir: "/x", want: map[string]string{
			"memory.limit_in_bytes": "536870912", "memory.memsw.limit_in_bytes": "536870912",
			"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000", "cpu.shares": "512",
			"pids.max": "65", "blkio.weight": "1000", "blkio.bfq.weight": "1000",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, controller := range controllers {
				p := part{controller: controller, dir: c.dir}
				for _, v := range p.values(p, want) {
					got[v.file] = v.value
				}
				if none := p.values(p, runtime.Limits{}); len(none) > 0 {
					t.Errorf("no limit is written as %v", none)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAMountIsReadWithWhatItHolds(t *testing.T) {
	for line, want := range map[string]mount{
		"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755":                           {},
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct": {point: "/sys/fs/cgroup/cpu,cpuacct", root: "/", controllers: []string{"rw", "cpu", "cpuacct"}},
		"41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate":            {point: "/sys/fs/cgroup", root: "/", controllers: []string{unified}},
		"50 31 0:33 /docker/ab /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory":    {point: "/sys/fs/cgroup/memory", root: "/docker/ab", controllers: []string{"rw", "memory"}},
		"":                  {},
		"1 2 3 - cgroup":    {},
		"1 2 3 / /x - a":    {},
		"1 2 3 / /x rw - -": {},
	} {
		got, ok := parseMount(line)
		if ok != (want.point != "") || ok && cmp.Diff(want, got, cmp.AllowUnexported(mount{})) != "" {
			t.Errorf("%q: %v, %+v", line, ok, got)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseMount(line); ok && (m.point == "" || len(m.controllers) == 0) {
			t.Errorf("%+v", m)
		}
	})
}

func TestAPathIsSeenFromTheMountedPart(t *testing.T) {
	for _, c := range []struct{ path, root, want string }{
		{"/a/b", "/", "/a/b"},
		{"/docker/ab", "/docker/ab", ""},
		{"/docker/ab/c", "/docker/ab", "/c"},
		{"/docker/abc", "/docker/ab", "/docker/abc"},
		{"/", "/docker/ab", "/"},
	} {
		if got := within(c.path, c.root); got != c.want {
			t.Errorf("%s below %s: %q, want %q", c.path, c.root, got, c.want)
		}
	}
}

// unifiedTree is a tree of version 2 and a controller that this host has left to it; nil
// when there is none.
func unifiedTree(t *testing.T, name string) (tree *Tree, parent, controller string) {
	t.Helper()
	own, err := ownDirs()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(filepath.Join(own[unified], "cgroup.controllers"))
	offered := strings.Fields(string(b))
	if own[unified] == "" || len(offered) == 0 {
		t.Log("version 2 has no controller here: what is written and read of it is held to its documents, see docs/limits.md")
		return nil, "", ""
	}
	if paths, err := pathsOf("self"); err != nil || startable(paths[unified]) != nil {
		t.Log("these tests run in a group of systemd's own, which may not hand controllers on")
		return nil, "", ""
	}
	tree, err = Open(name + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Logf("no control groups here: %v", err)
		return nil, "", ""
	}
	t.Cleanup(tree.Close)
	return tree, own[unified], offered[0]
}

func TestAControllerOfVersion2IsHandedOnToTheTreesGroups(t *testing.T) {
	tree, parent, controller := unifiedTree(t, "enable-")
	if tree == nil {
		return
	}
	if err := tree.enable(parent, controller); err != nil {
		t.Fatal(err)
	}
	group := tree.Group("aaaaaa")
	dir, err := group.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer group.Discard()
	defer dir.Close()
	if !offers(group.dir, controller) {
		t.Errorf("%s is not offered in the group", controller)
	}
}

func TestControllersAreHandedOnOnlyWhereTheNextAgentCanStart(t *testing.T) {
	for path, may := range map[string]bool{
		"/system.slice/orrery-nodeagent.service":                            false,
		"/system.slice/orrery-nodeagent.service/agent.orrery":               true,
		"/system.slice/orrery-nodeagent.service/orrery-abc/aaaaaa":          true, // started by an instance
		"/user.slice/user-1000.slice/user@1000.service/app.slice/a.service": false,
		"/user.slice/user-1000.slice/session-3.scope":                       true,
		"/system.slice/docker-0123.scope":                                   true,
		"/":                                                                 true,
		"":                                                                  true,
	} {
		err := startable(path)
		if (err == nil) != may || err != nil && (!errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "from version 254 on")) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestAHostWithoutControllersSaysWhatIsNotHeld(t *testing.T) {
	var none *Limiter
	if o := none.Offer(); o.By != "none" || o.Holds(fleet.LimitMemory) {
		t.Errorf("%+v", o)
	}
	if join, err := none.Prepare("aaaaaa", runtime.Limits{MemoryMiB: 1}); join != nil || err != nil {
		t.Errorf("%v, %v", join, err)
	}
	for _, c := range controllers {
		_, err := c.find("nobody", nil, map[string]string{})
		if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "offers no controller") {
			t.Errorf("%s: %v", c.limit, err)
		}
	}
}

func TestWhatTheHostRefusesIsToldAndTheRestIsHeld(t *testing.T) {
	l := NewLimiter("refuse-"+strconv.Itoa(os.Getpid()), nil)
	defer l.Close()
	if !needs(t, l.Offer().Holds(fleet.LimitMemory) && l.Offer().Holds(fleet.LimitProcesses), "not held here: "+l.Offer().Why) {
		return
	}
	join, err := l.Prepare("aaaaaa", runtime.Limits{MemoryMiB: -1 << 40, Processes: 5 << 30})
	defer l.Release(t.Context(), "aaaaaa")
	if !errs.Is(err, errs.Unavailable) || len(join) != 1 {
		t.Errorf("joins %q: %v", join, err)
	}
	join, err = l.Prepare("aaaaaa", runtime.Limits{MemoryMiB: 64, Processes: 9})
	if err != nil || len(join) != 2 {
		t.Errorf("joins %q: %v", join, err)
	}
	if oom, limit := l.Killed("aaaaaa"); oom || limit != 0 {
		t.Errorf("killed at %d", limit)
	}
	l.Release(t.Context(), "aaaaaa")
	if _, err := os.Stat(filepath.Dir(join[0])); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%s is left: %v", join[0], err)
	}
}
