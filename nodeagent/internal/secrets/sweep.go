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

// The names of what is kept, and of a write that is under way.
const (
	suffix  = ".json"
	partial = ".tmp"
)

// Sweep removes what an agent before this one was cut short in writing, and what is kept
// of instances that known says nothing is known of. known is asked without any lock held;
// what is kept anew after it was asked stays. Files of other names are somebody else's.
// Unavailable tells what could not be removed.
func (r *Resolver) Sweep(known func(fleet.InstanceID) bool) error {
	entries, err := os.ReadDir(r.cfg.Keep)
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
			failed = append(failed, r.drop(filepath.Join(r.cfg.Keep, e.Name()), was))
		}
	}
	return errs.As(errs.Unavailable, "secrets.Sweep", errors.Join(failed...))
}

// drop removes a file unless another one has taken its place.
func (r *Resolver) drop(path string, was fs.FileInfo) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, err := os.Lstat(path)
	if err != nil || !os.SameFile(is, was) {
		return nil
	}
	return os.Remove(path)
}
