package cgroup

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// unified is the key of the version 2 hierarchy; others are keyed by controller.
const unified = ""

// leaf is the group to which an agent moves itself, because a version 2 group with processes
// cannot delegate controllers.
const leaf = "agent.orrery"

// ownDirs returns the directories of the groups of this process, by controller. If it was
// started inside an older agent's group or moved to its leaf, it returns that agent's parent
// group, so that agents do not nest.
func ownDirs() (map[string]string, error) {
	paths, err := pathsOf("self")
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "cgroup.ownDirs", err)
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
				path, _ = splitAgentGroup(path)
				dirs[name] = filepath.Join(m.point, relativeTo(strings.TrimSuffix(path, "/"+leaf), m.root))
			}
		}
	}
	return dirs, errs.WrapAs(errs.Unavailable, "cgroup.ownDirs", lines.Err())
}

// mount is a mounted hierarchy: its path, the mounted part and its controllers.
type mount struct {
	point, root string
	controllers []string
}

// parseMount parses a line of mountinfo; ok is false if it is not a cgroup.
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

// relativeTo returns a path relative to the mounted part of a hierarchy.
func relativeTo(path, root string) string {
	if rest, ok := strings.CutPrefix(path, root); ok && root != "/" && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// pathsOf returns the groups of a process, by controller.
func pathsOf(pid string) (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "cgroup.pathsOf", err)
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
