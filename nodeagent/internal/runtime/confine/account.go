package confine

import (
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Account is a user of the host, or a number that no user of the host has.
type Account struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups,omitempty"`
}

// Tenant returns the account of an instance with a number of its own. Its group has the same number.
func Tenant(uid int) Account { return Account{Name: strconv.Itoa(uid), UID: uid, GID: uid} }

// AccountOf returns the account of an instance: that of its own number, or else that of a name. It
// returns the errors of Lookup. ok is false if there is neither.
func AccountOf(uid int, name string) (a Account, ok bool, err error) {
	switch {
	case uid != 0:
		return Tenant(uid), true, nil
	case name != "":
		a, err = Lookup(name)
		return a, err == nil, err
	}
	return Account{}, false, nil
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

// credential returns the account as the kernel's identifiers.
func (a Account) credential() *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
	for _, g := range a.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// own gives the account a run's terminal, FIFO or file, so that the run can open it by the name of its
// descriptor. It ignores other files.
func (a Account) own(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil && kind != unix.S_IFIFO && kind != unix.S_IFREG {
		return nil
	}
	return unix.Fchown(fd, a.UID, -1)
}

// mayEnter reports whether the mode of a directory lets an account pass it.
func (a Account) mayEnter(dir string) (bool, error) {
	const x = 0o1
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	switch {
	case a.UID == 0:
		return true, nil
	case int(st.Uid) == a.UID:
		return st.Mode&(x<<6) != 0, nil
	case int(st.Gid) == a.GID, slices.Contains(a.Groups, int(st.Gid)):
		return st.Mode&(x<<3) != 0, nil
	}
	return st.Mode&x != 0, nil
}
