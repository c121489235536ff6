package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// identify reads or creates the identity of the directory and of this boot.
func (j *Journal) identify(dir, boot string, newUUID func() string) (err error) {
	if j.uuid, err = j.identity(filepath.Join(dir, "uuid"), newUUID); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(j.lock.Fd()), &st); err != nil {
		return unusable(dir, err)
	}
	j.holder = fmt.Sprintf("%s/%d/%d", boot, st.Dev, st.Ino)
	path := filepath.Join(dir, "holder")
	before, err := os.ReadFile(path)
	if err == nil && string(before) == j.holder+"\n" {
		return nil
	}
	j.holderChanged = err == nil
	j.rebooted = err == nil && !strings.HasPrefix(string(before), boot+"/")
	if err := replace(path, []byte(j.holder+"\n"), flushed); err != nil {
		return unusable(dir, err)
	}
	return nil
}

// unusable is the error for a data directory that cannot be used, with advice.
func unusable(dir string, err error) error {
	what := reason(err)
	switch {
	case errors.Is(err, unix.EROFS):
		what += ": mount it writable or choose another directory"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		what += ": make room or choose another directory"
	case errors.Is(err, fs.ErrPermission):
		what += ": give it to the agent's user or choose another directory"
	}
	return &errs.Error{
		Op: "journal.Open", Kind: errs.Invalid, Field: "data", Err: err,
		Message: fmt.Sprintf("the data directory %s cannot be written: %s; running instances are left alone", dir, what),
	}
}

func reason(err error) string {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Path + ": " + e.Err.Error()
	}
	return err.Error()
}

// identity reads the directory's identity, and creates one for a new directory only. With
// another identity the instances of an existing directory would not be recognized.
func (j *Journal) identity(path string, make func() string) (string, error) {
	b, err := os.ReadFile(path)
	id := strings.TrimSpace(string(b))
	switch {
	case err == nil && identityForm.MatchString(id):
		return id, nil
	case errors.Is(err, fs.ErrNotExist):
		if files, _ := os.ReadDir(j.dir); len(files) > 0 {
			return "", lostIdentity(path, "is missing although there is a journal", err)
		}
	case err != nil:
		return "", lostIdentity(path, "cannot be read: "+reason(err), err)
	default:
		return "", lostIdentity(path, "contains no valid identity", nil)
	}
	id = make()
	if err := replace(path, []byte(id+"\n"), flushed); err != nil {
		return "", unusable(filepath.Dir(path), err)
	}
	return id, nil
}

// identityForm matches an identity, which becomes part of a path.
var identityForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

func lostIdentity(path, what string, err error) error {
	return &errs.Error{Op: "journal.Open", Kind: errs.Invalid, Field: "data", Err: err, Message: fmt.Sprintf(
		"%s %s: write the dataUuid of the node's record (etcdctl get /orrery/v1/nodes/NODE) into it, or use an empty directory and another node id; running instances are left alone",
		path, what)}
}

// UUID identifies the data directory.
func (j *Journal) UUID() string { return j.uuid }

// Holder distinguishes this directory on this boot of the host from a copy of it: agents with
// the same holder compete for the same lock.
func (j *Journal) Holder() string { return j.holder }

// Rebooted reports whether the host was restarted since the directory was last opened.
func (j *Journal) Rebooted() bool { return j.rebooted }

// HolderChanged reports whether the directory was last opened by another holder: before a restart of
// the host, or in the directory that this one is a copy of. Then other agents may run its
// processes.
func (j *Journal) HolderChanged() bool { return j.holderChanged }
