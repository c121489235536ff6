package secrets

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// The suffixes of state files and of temporary files.
const (
	suffix  = ".json"
	partial = ".tmp"
)

// Sweep removes temporary files of an earlier run of the agent, and the state of instances for
// which known returns false. It calls known without a lock. State that was stored meanwhile
// stays, and so do files with other names. It returns Unavailable with what could not be removed.
func (r *Resolver) Sweep(known func(fleet.InstanceID) bool) error {
	entries, err := os.ReadDir(r.cfg.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	failed := []error{err}
	for _, e := range entries {
		name, unfinished := strings.CutSuffix(e.Name(), partial)
		name, ours := strings.CutSuffix(name, suffix)
		id := fleet.InstanceID(name)
		if !ours || !id.Valid() || !e.Type().IsRegular() {
			continue
		}
		was, err := e.Info()
		if err == nil && (unfinished || !known(id)) {
			failed = append(failed, r.removeUnchanged(filepath.Join(r.cfg.StateDir, e.Name()), was))
		}
	}
	return errs.WrapAs(errs.Unavailable, "secrets.Sweep", errors.Join(failed...))
}

// removeUnchanged removes a file unless it was replaced meanwhile.
func (r *Resolver) removeUnchanged(path string, was fs.FileInfo) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, err := os.Lstat(path)
	if err != nil || !os.SameFile(is, was) {
		return nil
	}
	return os.Remove(path)
}
