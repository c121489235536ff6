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

func TestLimitValuesOfEachVersion(t *testing.T) {
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

func TestParseMount(t *testing.T) {
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

func TestPathIsRelativeToTheMount(t *testing.T) {
	for _, c := range []struct{ path, root, want string }{
		{"/a/b", "/", "/a/b"},
		{"/docker/ab", "/docker/ab", ""},
		{"/docker/ab/c", "/docker/ab", "/c"},
		{"/docker/abc", "/docker/ab", "/docker/abc"},
		{"/", "/docker/ab", "/"},
	} {
		if got := relativeTo(c.path, c.root); got != c.want {
			t.Errorf("%s below %s: %q, want %q", c.path, c.root, got, c.want)
		}
	}
}

// unifiedTree returns a version 2 tree and a controller that this host delegates; nil if there
// is none.
func unifiedTree(t *testing.T, name string) (tree *Tree, parent, controller string) {
	t.Helper()
	own, err := ownDirs()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(filepath.Join(own[unified], "cgroup.controllers"))
	offered := strings.Fields(string(b))
	if own[unified] == "" || len(offered) == 0 {
		t.Log("version 2 has no controller here: what is written and read of it is held to its documents, see docs/set-limits.md")
		return nil, "", ""
	}
	if paths, err := pathsOf("self"); err != nil || serviceOf(paths[unified]) != "" {
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

func TestControllerIsDelegatedToTheTree(t *testing.T) {
	tree, parent, controller := unifiedTree(t, "enable-")
	if tree == nil {
		return
	}
	if err := tree.enable(parent, controller, systemdVersion); err != nil {
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

func TestServiceGroupsAreRecognized(t *testing.T) {
	for path, unit := range map[string]string{
		"/system.slice/orrery-nodeagent.service":                            "orrery-nodeagent.service",
		"/system.slice/orrery-nodeagent.service/agent.orrery":               "",
		"/system.slice/orrery-nodeagent.service/orrery-abc/aaaaaa":          "", // started by an instance
		"/user.slice/user-1000.slice/user@1000.service/app.slice/a.service": "a.service",
		"/user.slice/user-1000.slice/session-3.scope":                       "",
		"/system.slice/docker-0123.scope":                                   "",
		"/":                                                                 "",
		"":                                                                  "",
	} {
		if got := serviceOf(path); got != unit {
			t.Errorf("%q: %q, want %q", path, got, unit)
		}
	}
}

func TestDelegationAdvice(t *testing.T) {
	const backports = "apt-get install -t bookworm-backports systemd"
	for version, edits := range map[int]bool{0: true, 249: false, 252: false, 253: false, 254: true, 257: true} {
		got := delegationAdvice("orrery.service", version)
		if !strings.Contains(got, "Delegate=yes and DelegateSubgroup=agent.orrery") || !strings.Contains(got, "orrery.service") {
			t.Errorf("systemd %d: the setting is missing: %s", version, got)
		}
		if strings.Contains(got, "systemctl edit orrery.service") != edits || strings.Contains(got, backports) == edits {
			t.Errorf("systemd %d: %s", version, got)
		}
	}
}

func TestAdviceForMissingControllers(t *testing.T) {
	for below, want := range map[string]string{
		"user.slice/user-0.slice/session-3.scope":                            "systemd-run --scope -p Delegate=yes",
		"user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope": "systemctl edit user@.service",
		"system.slice/orrery.service":                                        "DelegateSubgroup=agent.orrery",
	} {
		root := t.TempDir()
		own := filepath.Join(root, below)
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		for dir, controllers := range map[string]string{root: "cpu io memory pids", own: "memory pids"} {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte(controllers), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range controllers {
			if c.limit != fleet.LimitCPU {
				continue
			}
			_, err := c.find("test", nil, map[string]string{unified: own}, systemdVersion)
			if err == nil || !strings.Contains(errs.MessageOf(err), want) || !strings.Contains(errs.MessageOf(err), own) {
				t.Errorf("%s: %v, want %q", below, err, want)
			}
		}
	}
}

func TestParseSystemdVersion(t *testing.T) {
	for text, want := range map[string]int{
		"systemd 252 (252.39-1~deb12u1)\n+PAM +AUDIT": 252, "systemd 254.26": 254, "systemd 255~rc1 (255)": 255, "systemd": 0, "": 0, "init 3": 0, "systemd x": 0,
	} {
		if got := parseVersion(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestUnsupportedLimitsAreGroupedByReason(t *testing.T) {
	l := newLimiter(nil, func(c controller) (part, error) {
		if c.limit == fleet.LimitIO {
			return part{}, errs.New(errs.Unavailable, "no weights")
		}
		return part{}, errs.New(errs.Unavailable, "delegate them")
	})
	if got, want := l.Offer().Why, "memory, cpu, processes: delegate them; io: no weights"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHostWithoutControllersSaysSo(t *testing.T) {
	var none *Limiter
	if o := none.Offer(); o.By != "none" || o.Holds(fleet.LimitMemory) {
		t.Errorf("%+v", o)
	}
	if join, err := none.Prepare("aaaaaa", runtime.Limits{MemoryMiB: 1}); join != nil || err != nil {
		t.Errorf("%v, %v", join, err)
	}
	for _, c := range controllers {
		_, err := c.find("nobody", nil, map[string]string{}, systemdVersion)
		if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "offers no controller") {
			t.Errorf("%s: %v", c.limit, err)
		}
	}
}

func TestRefusedLimitDoesNotPreventOthers(t *testing.T) {
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
	if _, err := os.Stat(join[0]); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%s is left: %v", join[0], err)
	}
}
