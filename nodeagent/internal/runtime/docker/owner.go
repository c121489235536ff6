package docker

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// userOf returns the user inside the container: that of the container's settings, else the host
// user of confine.user as a number, because the image need not know its name. Else it is the
// image's, but an agent that is not root uses its own, because it cannot remove files of others.
func (r *Runtime) userOf(s runtime.Spec) string {
	r.mu.Lock()
	rootless := r.rootless
	r.mu.Unlock()
	switch {
	case s.Container.User != "":
		return s.Container.User
	case s.Confine.User == "" && os.Geteuid() == 0:
		return ""
	case s.Confine.User == "" && rootless: // root in the container is the engine's user on the host
		return "0:0"
	case s.Confine.User == "":
		return fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
	}
	if u, err := user.Lookup(s.Confine.User); err == nil {
		return u.Uid + ":" + u.Gid
	}
	return s.Confine.User
}

// owner is a user with its groups, as seen on the host.
type owner struct {
	uid    int
	groups []int
}

// agent returns the user of this process.
func agent() (owner, error) {
	groups, err := os.Getgroups()
	return owner{os.Geteuid(), append(groups, os.Getegid())}, errs.WrapAs(errs.Unavailable, "docker.agent", err)
}

// mayRunAs rejects a container user with rights on the host that the agent does not have. The agent
// could neither remove that user's files nor kill its processes, and setgid files could give
// other users of the host the rights of its groups.
func (a owner) mayRunAs(inside owner) error {
	if a.uid == 0 {
		return nil
	}
	if a.uid != inside.uid {
		return errs.New(errs.Invalid, "the container's user is user %d of the host and the agent is user %d, which can neither kill its processes nor remove its files: "+
			"leave container.user and confine.user empty, or run the agent as root", inside.uid, a.uid)
	}
	for _, g := range inside.groups {
		if !slices.Contains(a.groups, g) {
			return errs.New(errs.Invalid, "the container's user is in group %d of the host, and the agent is not: "+
				"leave container.user and confine.user empty, or name a group of the agent's (%d:%d)", g, a.uid, a.groups[len(a.groups)-1])
		}
	}
	return nil
}

// groupsOf returns the supplementary groups of a process.
func groupsOf(pid int) (groups []int, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(b), "\nGroups:")
	line, _, _ := strings.Cut(rest, "\n")
	for g := range strings.FieldsSeq(line) {
		n, err := strconv.Atoi(g)
		if err != nil {
			return nil, err
		}
		groups = append(groups, n)
	}
	return groups, nil
}

// chownDir gives the instance's directory to the server's user, except the lock file. With readOnly,
// template files stay the agent's, in sticky directories, where the server cannot replace them.
// It ignores errors: the server has to live with files it does not own.
func chownDir(dir string, uid, gid int, sealed bool) {
	if uid == os.Geteuid() {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == filepath.Join(dir, claim.FileName) {
			return nil // skip what cannot be read
		}
		info, err := os.Lstat(path)
		if err != nil {
			return nil
		}
		owner, mode := uid, info.Mode()
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok, mode&fs.ModeDevice != 0, mode.IsRegular() && st.Nlink > 1: // another user may own the file by another name
			return nil
		case sealed && int(st.Uid) == os.Geteuid():
			owner, mode = readOnlyOwner(mode, owner)
		}
		_ = os.Lchown(path, owner, gid)
		if mode != info.Mode() {
			_ = os.Chmod(path, mode)
		}
		return nil
	})
}

// readOnlyOwner returns the owner and mode of the agent's files that the server must not change or
// replace. The server accesses them by its group.
func readOnlyOwner(mode fs.FileMode, other int) (owner int, changed fs.FileMode) {
	switch {
	case mode.IsRegular() && mode&0o222 == 0:
		return os.Geteuid(), mode | mode&0o500>>3
	case mode.IsDir():
		return os.Geteuid(), mode | 0o070 | fs.ModeSticky
	}
	return other, mode
}
