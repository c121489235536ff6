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
	"github.com/orreryhq/orrery/nodeagent/internal/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// userOf is the user inside: the container's own one, else the host's one that was asked
// for, whose name an image need not know. Else it is the image's, unless the agent is not
// root: it can neither give the directory away nor remove what others write there.
func (r *Runtime) userOf(s runtime.Spec) string {
	r.mu.Lock()
	rootless := r.rootless
	r.mu.Unlock()
	switch {
	case s.Container.User != "":
		return s.Container.User
	case s.Confine.User == "" && os.Geteuid() == 0:
		return ""
	case s.Confine.User == "" && rootless: // root in there is the engine's user
		return "0:0"
	case s.Confine.User == "":
		return fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
	}
	if u, err := user.Lookup(s.Confine.User); err == nil {
		return u.Uid + ":" + u.Gid
	}
	return s.Confine.User
}

// owner is a user with its groups, as the host sees them.
type owner struct {
	uid    int
	groups []int
}

// agent is the user that this process runs as.
func agent() (owner, error) {
	groups, err := os.Getgroups()
	return owner{os.Geteuid(), append(groups, os.Getegid())}, errs.As(errs.Unavailable, "docker.agent", err)
}

// mayOwn refuses a user of a container that has rights on the host which the agent has not:
// the agent could neither remove its files nor kill its processes, and it could leave files
// that give other users of the host the rights of its groups.
func (a owner) mayOwn(inside owner) error {
	if a.uid == 0 {
		return nil
	}
	if a.uid != inside.uid {
		return errs.New(errs.Invalid, "the container's user is user %d of the host and the agent is user %d, which may neither end its processes nor remove its files: "+
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

// groupsOf are the supplementary groups of a process.
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

// give makes the instance's directory its server's, which may be anybody's in there, but
// for the file that says whose run the directory belongs to. Where what came from
// templates is read-only, that stays the agent's, in directories where others' files
// cannot be replaced. What the agent may not give, the server has to do without.
func give(dir string, uid, gid int, sealed bool) {
	if uid == os.Geteuid() {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == filepath.Join(dir, claim.FileName) {
			return nil // what cannot be looked at stays as it is
		}
		info, err := os.Lstat(path)
		if err != nil {
			return nil
		}
		owner, mode := uid, info.Mode()
		st, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok, mode&fs.ModeDevice != 0, mode.IsRegular() && st.Nlink > 1: // somebody else may know it by another name
			return nil
		case sealed && int(st.Uid) == os.Geteuid():
			owner, mode = keep(mode, owner)
		}
		_ = os.Lchown(path, owner, gid)
		if mode != info.Mode() {
			_ = os.Chmod(path, mode)
		}
		return nil
	})
}

// keep is the owner and the mode of what is the agent's and nobody may write to, or
// replace: others have it by their group.
func keep(mode fs.FileMode, other int) (owner int, changed fs.FileMode) {
	switch {
	case mode.IsRegular() && mode&0o222 == 0:
		return os.Geteuid(), mode | mode&0o500>>3
	case mode.IsDir():
		return os.Geteuid(), mode | 0o070 | fs.ModeSticky
	}
	return other, mode
}
