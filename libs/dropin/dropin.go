// Package dropin runs programs that an operator installed in a directory of this machine. They
// provide what the system cannot know: templates and values of variables.
//
// API clients can only name a file of that directory. Only the machine's operator controls its
// content.
//
// Invariants: Only programs in the directory run, and only if no user except root and the
// service's own can change them. A program gets only the given environment and PATH. Its time,
// output and input are limited. Before Run returns, the whole process group is killed. A process
// that leaves the group survives, so do not install programs that do that.
package dropin

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Dir is the absolute path of a directory of programs. Empty means there is no such directory.
type Dir string

const (
	maxListed = 20 // programs listed in an error
	// writableByGroup and writableByAll are the mode bits that let other users change a file.
	writableByGroup, writableByAll = 0o020, 0o002
)

// ValidName reports whether a string can name a program: 1 to 64 letters, digits, _ . and -, not
// starting with a period or a dash.
func ValidName(name string) bool {
	return validate.ValidSegment(name) && name[0] != '-'
}

// Find returns the path of a program. The error is Invalid if the name is not valid or there is no
// directory, NotFound if the program does not exist, and Denied if the program is not executable
// or other users can change it or the directory.
func (d Dir) Find(name string) (string, error) {
	switch {
	case d == "":
		return "", errs.New(errs.Invalid, "this machine runs no programs: its operator must configure a directory of programs first")
	case !ValidName(name):
		return "", errs.New(errs.Invalid, "%.80q is not a program name: use a file name of letters, digits, _ . and - without a path", name)
	case !filepath.IsAbs(string(d)):
		return "", errs.New(errs.Invalid, "the directory of programs must be an absolute path, not %s", d)
	}
	dir, err := os.Stat(string(d))
	if err != nil || !dir.IsDir() {
		return "", &errs.Error{Kind: errs.NotFound, Message: "the directory of programs " + string(d) + " does not exist", Err: err}
	}
	if why := untrusted(dir); why != "" {
		return "", errs.New(errs.Denied, "the directory of programs %s %s: no program in it is run", d, why)
	}
	path := filepath.Join(string(d), name)
	file, err := os.Lstat(path)
	switch {
	case err != nil:
		return "", &errs.Error{Kind: errs.NotFound, Message: "this machine has no program " + name + d.others(), Err: err}
	case !file.Mode().IsRegular():
		return "", errs.New(errs.Denied, "the program %s is not a regular file: copy it there, because links are not followed", name)
	case file.Mode().Perm()&0o111 == 0:
		return "", errs.New(errs.Denied, "the program %s is not executable: chmod 755 it", name)
	}
	if why := untrusted(file); why != "" {
		return "", errs.New(errs.Denied, "the program %s %s, so it is not run", name, why)
	}
	return path, nil
}

// untrusted says why other users could change a file, or "".
func untrusted(fi fs.FileInfo) string {
	switch {
	case fi.Mode().Perm()&writableByAll != 0:
		return "is writable by everyone (fix: chmod go-w)"
	case fi.Mode().Perm()&writableByGroup != 0:
		return "is writable by its group (fix: chmod g-w)"
	}
	if sys, ok := fi.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return "is owned by neither root nor the user of this service (fix: chown)"
	}
	return ""
}

// others lists the existing programs.
func (d Dir) others() string {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries {
		if ValidName(e.Name()) && e.Type().IsRegular() && len(names) < maxListed {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return "; the directory is empty"
	}
	return "; available: " + strings.Join(names, ", ")
}
