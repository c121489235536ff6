package docker

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
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

// mayOwn refuses a user of a container, as the host sees it, whose files an agent could
// not remove and whose processes it could not kill.
func mayOwn(agent, inside int) error {
	if agent == 0 || agent == inside {
		return nil
	}
	return errs.New(errs.Invalid, "the container's user is user %d of the host and the agent is user %d, which may neither end its processes nor remove its files: "+
		"leave container.user and confine.user empty, or run the agent as root", inside, agent)
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
		case !ok, mode.IsRegular() && st.Nlink > 1: // somebody else may know it by another name
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
