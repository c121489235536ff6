package confine

import (
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

// setup says what Main does before it executes the command.
type setup struct {
	// User is the user to run as; nil for the current user.
	User *Account `json:"user,omitempty"`
	// NoNewPrivileges sets the kernel's no_new_privs flag.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// Tmp is the directory to mount at /tmp; empty for none.
	Tmp string `json:"tmp,omitempty"`
	// Dir is the working directory, which must stay visible if it is below /tmp.
	Dir string `json:"dir"`
}

// Account is a user of the host.
type Account struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups,omitempty"`
}

// Lookup finds a user by name or number. An unknown number is used as user and group id. It
// returns Invalid for an unknown name.
func Lookup(name string) (Account, error) {
	u, err := user.Lookup(name)
	number, notNumber := strconv.Atoi(name)
	if err != nil && notNumber == nil {
		if u, err = user.LookupId(name); err != nil {
			return Account{Name: name, UID: number, GID: number}, nil
		}
	}
	if err != nil {
		return Account{}, errs.New(errs.Invalid, "the user %q of confine.user does not exist on the node: add the user there, or change confine.user", name)
	}
	a := Account{Name: u.Username}
	a.UID, err = strconv.Atoi(u.Uid)
	if err == nil {
		a.GID, err = strconv.Atoi(u.Gid)
	}
	if err != nil {
		return Account{}, errs.WrapAs(errs.Invalid, "confine.Lookup", err)
	}
	groups, _ := u.GroupIds() // without them the user has only its primary group
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil {
			a.Groups = append(a.Groups, n)
		}
	}
	return a, nil
}

// Plan returns the argument of Main that confines a command in the directory dir. It creates a
// private /tmp at tmp. It returns Invalid, with what to do, if this host does not support it.
func Plan(c isolation.Confine, dir, tmp string) (string, error) {
	s := setup{Dir: dir, NoNewPrivileges: c.NoNewPrivileges}
	privileged := os.Geteuid() == 0
	if c.User != "" {
		a, err := Lookup(c.User)
		if err != nil {
			return "", err
		}
		if !privileged && a.UID != os.Geteuid() {
			return "", errs.New(errs.Invalid, "only an agent that runs as root can run instances as another user: start it as root, or clear confine.user")
		}
		if privileged {
			s.User = &a
			if err := checkPath(dir, a); err != nil {
				return "", err
			}
		}
	}
	if c.PrivateTmp {
		if !privileged {
			return "", errs.New(errs.Invalid, "only an agent that runs as root can give instances a /tmp of their own: start it as root, or clear confine.privateTmp")
		}
		s.Tmp = tmp
		if err := makeTmp(tmp); err != nil {
			return "", errs.WrapAs(errs.Unavailable, "confine.Plan", err)
		}
	}
	b, err := json.Marshal(s)
	return string(b), errs.WrapAs(errs.Internal, "confine.Plan", err)
}

func makeTmp(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// checkPath checks that a user may pass all directories down to dir.
func checkPath(dir string, a Account) error {
	for d := dir; ; d = filepath.Dir(d) {
		var st unix.Stat_t
		if err := unix.Stat(d, &st); err != nil {
			return errs.WrapAs(errs.Unavailable, "confine.checkPath", err)
		}
		if !mayEnter(st, a) {
			return errs.New(errs.Invalid, "the user %s may not enter %s, a parent of the instance's directory: allow it with chmod o+x %s, or move the agent's data directory", a.Name, d, d)
		}
		if d == "/" || d == "." {
			return nil
		}
	}
}

func mayEnter(st unix.Stat_t, a Account) bool {
	const x = 0o1
	switch {
	case a.UID == 0:
		return true
	case int(st.Uid) == a.UID:
		return st.Mode&(x<<6) != 0
	case int(st.Gid) == a.GID, slices.Contains(a.Groups, int(st.Gid)):
		return st.Mode&(x<<3) != 0
	}
	return st.Mode&x != 0
}
