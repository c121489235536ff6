package confine

import (
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// order is what the program is told to do before it becomes the command.
type order struct {
	// User is who to become; nil stays who it is.
	User *Account `json:"user,omitempty"`
	// NoNewPrivileges is the kernel's flag.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// Tmp is the directory that becomes /tmp; empty leaves that as it is.
	Tmp string `json:"tmp,omitempty"`
	// Dir is the working directory, which has to be there also where it is below /tmp.
	Dir string `json:"dir"`
}

// Account is a user of the host as the kernel knows one.
type Account struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups,omitempty"`
}

// Lookup finds a user by name or number. A number need not be known to the host: its
// group has the same one then. Invalid when there is none of that name.
func Lookup(name string) (Account, error) {
	u, err := user.Lookup(name)
	number, notNumber := strconv.Atoi(name)
	if err != nil && notNumber == nil {
		if u, err = user.LookupId(name); err != nil {
			return Account{Name: name, UID: number, GID: number}, nil
		}
	}
	if err != nil {
		return Account{}, errs.New(errs.Invalid, "the user %q of confine.user does not exist on the node: add it there, or name another", name)
	}
	a := Account{Name: u.Username}
	a.UID, err = strconv.Atoi(u.Uid)
	if err == nil {
		a.GID, err = strconv.Atoi(u.Gid)
	}
	if err != nil {
		return Account{}, errs.As(errs.Invalid, "confine.Lookup", err)
	}
	groups, _ := u.GroupIds() // without, it is in its own one only
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil {
			a.Groups = append(a.Groups, n)
		}
	}
	return a, nil
}

// Plan is the argument of Main that confines a command in the directory dir, whose
// private /tmp is made at tmp. Invalid, with what to do about it, when this host cannot.
func Plan(c fleet.Confine, dir, tmp string) (string, error) {
	o := order{Dir: dir, NoNewPrivileges: c.NoNewPrivileges}
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
			o.User = &a
			if err := enterable(dir, a); err != nil {
				return "", err
			}
		}
	}
	if c.PrivateTmp {
		if !privileged {
			return "", errs.New(errs.Invalid, "only an agent that runs as root can give instances a /tmp of their own: start it as root, or clear confine.privateTmp")
		}
		o.Tmp = tmp
		if err := makeTmp(tmp); err != nil {
			return "", errs.As(errs.Unavailable, "confine.Plan", err)
		}
	}
	b, err := json.Marshal(o)
	return string(b), errs.As(errs.Internal, "confine.Plan", err)
}

func makeTmp(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// enterable tells whether a user may pass all directories down to one.
func enterable(dir string, a Account) error {
	for d := dir; ; d = filepath.Dir(d) {
		var st unix.Stat_t
		if err := unix.Stat(d, &st); err != nil {
			return errs.As(errs.Unavailable, "confine.enterable", err)
		}
		if !passes(st, a) {
			return errs.New(errs.Invalid, "the user %s may not pass the directory %s, which leads to the instance's own: allow it with chmod o+x %s, or move the agent's data", a.Name, d, d)
		}
		if d == "/" || d == "." {
			return nil
		}
	}
}

func passes(st unix.Stat_t, a Account) bool {
	const x = 0o1
	switch {
	case a.UID == 0:
		return true
	case int(st.Uid) == a.UID:
		return st.Mode&(x<<6) != 0
	case int(st.Gid) == a.GID || a.member(int(st.Gid)):
		return st.Mode&(x<<3) != 0
	}
	return st.Mode&x != 0
}

func (a Account) member(group int) bool {
	for _, g := range a.Groups {
		if g == group {
			return true
		}
	}
	return false
}
