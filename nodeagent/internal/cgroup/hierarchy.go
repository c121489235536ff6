package cgroup

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// unified stands for the version 2 hierarchy where the others go by their controllers.
const unified = ""

// leaf is the group an agent moves itself to where version 2 lets no group with
// processes of its own hand controllers on.
const leaf = "agent.orrery"

// ownDirs are the directories of the groups this process lives in, by controller. An
// agent that was started inside an older agent's group, or has moved to its leaf, lives
// where that one was: it must not nest.
func ownDirs() (map[string]string, error) {
	paths, err := pathsOf("self")
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, errs.As(errs.Unavailable, "cgroup.ownDirs", err)
	}
	defer f.Close()
	dirs := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m, ok := parseMount(lines.Text())
		if !ok {
			continue
		}
		for _, name := range m.controllers {
			path, known := paths[name]
			if _, earlier := dirs[name]; known && !earlier {
				path, _ = partOf(path)
				dirs[name] = filepath.Join(m.point, within(strings.TrimSuffix(path, "/"+leaf), m.root))
			}
		}
	}
	return dirs, errs.As(errs.Unavailable, "cgroup.ownDirs", lines.Err())
}

// mount is a mounted hierarchy: where, which part of it, and whose controllers.
type mount struct {
	point, root string
	controllers []string
}

// parseMount reads a line of mountinfo; ok is false for everything but control groups.
func parseMount(line string) (m mount, ok bool) {
	place, about, _ := strings.Cut(line, " - ")
	p, a := strings.Fields(place), strings.Fields(about)
	if len(p) < 5 || len(a) < 3 {
		return mount{}, false
	}
	m = mount{root: p[3], point: p[4]}
	switch a[0] {
	case "cgroup2":
		m.controllers = []string{unified}
	case "cgroup":
		m.controllers = strings.Split(a[2], ",")
	default:
		return mount{}, false
	}
	return m, true
}

// within is a path as seen below the part of a hierarchy that is mounted.
func within(path, root string) string {
	if rest, ok := strings.CutPrefix(path, root); ok && root != "/" && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// pathsOf is where a process lives in each hierarchy, by controller.
func pathsOf(pid string) (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return nil, errs.As(errs.Unavailable, "cgroup.pathsOf", err)
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, name := range strings.Split(parts[1], ",") {
			paths[name] = parts[2]
		}
	}
	return paths, nil
}
