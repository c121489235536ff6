// Package dropin runs the programs that an operator dropped into a directory of the
// own machine, to bring what the system cannot know: templates, values of variables.
//
// Whoever speaks to an API only ever names a file of that directory; what is in the
// directory is the operator's of the machine alone.
//
// Invariants: nothing outside the directory is run, and nothing that others than root
// and the own user may change; a program gets the environment that it is given, and
// PATH; what it takes of time, output and input is bounded; when it ends, however it
// ends, all of its process group is killed before Run returns. A process that leaves
// the group on purpose outlives it: only put programs there that do not.
package dropin

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
)

// Dir is the absolute path of a directory of programs. "" has none.
type Dir string

const (
	maxName   = 64 // of a program, in bytes
	maxListed = 20 // programs that an error names
	// writableByGroup and writableByAll are the modes that let others change a file.
	writableByGroup, writableByAll = 0o020, 0o002
)

// ValidName reports whether a string can name a program: 1 to 64 letters, digits,
// _ . and -, not beginning with a period or a dash.
func ValidName(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' || name[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.-", r)
	})
}

// Find is the path of a program that may be run. Invalid when the name is none or there
// is no directory, NotFound when the directory has no such program, Denied when the
// directory or the file may be changed by others.
func (d Dir) Find(name string) (string, error) {
	switch {
	case d == "":
		return "", errs.New(errs.Invalid, "this machine runs no programs: its operator has to name a directory of them first")
	case !ValidName(name):
		return "", errs.New(errs.Invalid, "a program is named by its file name alone, of letters, digits, _ . and -; %.80q is none", name)
	case !filepath.IsAbs(string(d)):
		return "", errs.New(errs.Invalid, "the directory of programs must be an absolute path, %s is not", d)
	}
	dir, err := os.Stat(string(d))
	if err != nil || !dir.IsDir() {
		return "", &errs.Error{Kind: errs.NotFound, Message: "the directory of programs " + string(d) + " is not there", Err: err}
	}
	if why := untrusted(dir); why != "" {
		return "", errs.New(errs.Denied, "the directory of programs %s %s: nothing in it is run", d, why)
	}
	path := filepath.Join(string(d), name)
	file, err := os.Lstat(path)
	switch {
	case err != nil:
		return "", &errs.Error{Kind: errs.NotFound, Message: "there is no program " + name + " on this machine" + d.others(), Err: err}
	case !file.Mode().IsRegular():
		return "", errs.New(errs.Denied, "the program %s is no file: links are not followed, copy it there", name)
	case file.Mode().Perm()&0o111 == 0:
		return "", errs.New(errs.Denied, "the program %s is not executable: chmod 755 it", name)
	}
	if why := untrusted(file); why != "" {
		return "", errs.New(errs.Denied, "the program %s %s: it is not run", name, why)
	}
	return path, nil
}

// untrusted says who else may change a file; "" when nobody may.
func untrusted(fi fs.FileInfo) string {
	switch {
	case fi.Mode().Perm()&writableByAll != 0:
		return "may be written by everybody, take that away (chmod go-w)"
	case fi.Mode().Perm()&writableByGroup != 0:
		return "may be written by its group, take that away (chmod g-w)"
	}
	if sys, ok := fi.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return "belongs to neither root nor the user of this service (chown it)"
	}
	return ""
}

// others names the programs that there are.
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
		return ", nor any other"
	}
	return "; there are " + strings.Join(names, ", ")
}
