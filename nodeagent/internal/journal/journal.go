// Package journal is the agent's memory on disk: one small file per instance,
// written before anything is done, so that an agent that was killed at any moment
// finds its processes again.
//
// Invariants:
//   - A file is replaced as a whole: a reader sees the old entry or the new one.
//   - A file that cannot be read harms no other: it is named and left out.
//   - The directory belongs to one agent at a time (flock) and to one node for ever
//     (its UUID). Whoever holds the lock knows that every predecessor is dead.
//
// Files are not flushed to the disk: they must survive the agent, not the host.
// After a power cut every process is gone as well, and what is missing here is
// read from the store.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Entry is what is remembered of one instance.
type Entry struct {
	Machine machine.State `json:"machine"`
	// Token is the instance's own token; it stands nowhere else in clear.
	Token string `json:"token,omitempty"`
	// Process identifies its latest process.
	Process runtime.Identity `json:"process"`
	// ProcessRun is the run Process belongs to.
	ProcessRun int `json:"processRun,omitempty"`
}

// Journal is an opened directory. Write and Remove may be called at once for different instances.
type Journal struct {
	dir  string
	lock *os.File
	uuid string
}

const suffix = ".json"

// Open locks dir, makes what is missing in it and reads its identity. newUUID
// gives one to a new directory. Conflict when another agent holds the lock,
// Invalid when the directory cannot be written.
func Open(dir string, newUUID func() string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Join(dir, "journal"), 0o700); err != nil {
		return nil, &errs.Error{Op: "journal.Open", Kind: errs.Invalid, Field: "data", Err: err, Message: "the data directory cannot be made: " + reason(err)}
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &errs.Error{Op: "journal.Open", Kind: errs.Invalid, Field: "data", Err: err, Message: "the data directory cannot be written: " + reason(err)}
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, &errs.Error{
			Op: "journal.Open", Kind: errs.Conflict, Field: "data", Err: err,
			Message: fmt.Sprintf("another agent runs on the data directory %s: stop it or use another directory", dir),
		}
	}
	j := &Journal{dir: filepath.Join(dir, "journal"), lock: lock}
	if j.uuid, err = identity(filepath.Join(dir, "uuid"), newUUID); err != nil {
		j.Close()
		return nil, errs.As(errs.Invalid, "journal.Open", err)
	}
	return j, nil
}

func reason(err error) string {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Path + ": " + e.Err.Error()
	}
	return err.Error()
}

func identity(path string, make func() string) (string, error) {
	b, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := make()
	return id, replace(path, []byte(id+"\n"))
}

// UUID identifies the data directory.
func (j *Journal) UUID() string { return j.uuid }

// Close releases the lock.
func (j *Journal) Close() { _ = j.lock.Close() }

// Load reads all entries, in the order of their ids. damaged names the files that could not be read.
func (j *Journal) Load() (entries []Entry, damaged []error, err error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, nil, errs.As(errs.Unavailable, "journal.Load", err)
	}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok {
			_ = os.Remove(filepath.Join(j.dir, f.Name())) // a write that was cut short
			continue
		}
		e, err := read(filepath.Join(j.dir, f.Name()), fleet.InstanceID(id))
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		entries = append(entries, e)
	}
	return slices.Clip(entries), damaged, nil
}

func read(path string, id fleet.InstanceID) (Entry, error) {
	var e Entry
	b, err := os.ReadFile(path)
	if err != nil {
		return e, errs.As(errs.Unavailable, "journal.read", err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, errs.As(errs.Internal, "journal.read", fmt.Errorf("%s: %w", path, err))
	}
	if e.Machine.Placement.Instance != id {
		return e, errs.New(errs.Internal, "%s holds an entry of another instance", path)
	}
	return e, nil
}

// Write replaces an instance's entry. Exhausted when the disk is full.
func (j *Journal) Write(e Entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return errs.As(errs.Internal, "journal.Write", err)
	}
	err = replace(j.path(e.Machine.Placement.Instance), b)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.As(errs.Exhausted, "journal.Write", err)
	}
	return errs.As(errs.Unavailable, "journal.Write", err)
}

// Remove forgets an instance.
func (j *Journal) Remove(id fleet.InstanceID) error {
	err := os.Remove(j.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.As(errs.Unavailable, "journal.Remove", err)
}

func (j *Journal) path(id fleet.InstanceID) string {
	return filepath.Join(j.dir, string(id)+suffix)
}

func replace(path string, content []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return os.Rename(tmp, path)
}
