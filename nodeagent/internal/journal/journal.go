// Package journal is the agent's memory on disk: one small file per instance,
// written before anything is done, so that an agent that was killed at any moment
// finds its processes again.
//
// Invariants:
//   - A file is replaced as a whole: a reader sees the old entry or the new one.
//   - A file that cannot be read harms no other: it is named and left out. So is one
//     of another node or of a newer version: guessing at it could end a process.
//   - The directory belongs to one agent at a time (flock) and to one node for ever
//     (its UUID). Whoever holds the lock knows that every predecessor is dead.
//   - A directory that once had an identity never gets another one by itself.
//
// Entries are not flushed to the disk: they must survive the agent, not the host.
// After a power cut every process is gone as well, and what is missing here is
// read from the store. Identity and holder are flushed.
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
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// version is the format of entries. One without a version is of the first format.
const version = 1

// Entry is what is remembered of one instance.
type Entry struct {
	// Version is the format it was written in; set by Write.
	Version int           `json:"version"`
	Machine machine.State `json:"machine"`
	// Token is the instance's own token; it stands nowhere else in clear.
	Token string `json:"token,omitempty"`
	// Process identifies its latest process.
	Process runtime.Identity `json:"process"`
	// ProcessRun is the run Process belongs to.
	ProcessRun int `json:"processRun,omitempty"`
	// LogFrom is where in the instance's output its latest process began to print.
	LogFrom int64 `json:"logFrom,omitempty"`
}

// Journal is an opened directory. Write and Remove may be called at once for different instances.
type Journal struct {
	dir      string
	lock     *os.File
	uuid     string
	holder   string
	moved    bool
	rebooted bool

	mu       sync.Mutex
	reserved bool // the reserve is there
}

const (
	suffix  = ".json"
	partial = ".tmp"
)

// Open locks dir, makes what is missing in it and reads its identity. newUUID
// gives one to a new directory; boot identifies the running kernel. Conflict when
// another agent holds the lock, Invalid when the directory cannot be used.
func Open(dir, boot string, newUUID func() string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Join(dir, "journal"), 0o700); err != nil {
		return nil, unusable(dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, &errs.Error{
			Op: "journal.Open", Kind: errs.Conflict, Field: "data",
			Message: fmt.Sprintf("another agent runs on the data directory %s: stop it or use another directory", dir),
		}
	}
	j := &Journal{dir: filepath.Join(dir, "journal"), lock: lock}
	if err := j.identify(dir, boot, newUUID); err != nil {
		j.Close()
		return nil, err
	}
	j.keep()
	return j, nil
}

// Close releases the lock.
func (j *Journal) Close() { _ = j.lock.Close() }

// Load reads node's entries, in the order of their ids. damaged names the files
// that could not be used and says why; they stay where they are.
func (j *Journal) Load(node fleet.NodeID) (entries []Entry, damaged []error, err error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, nil, errs.As(errs.Unavailable, "journal.Load", err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), partial) { // a write that was cut short
			_ = os.Remove(filepath.Join(j.dir, f.Name()))
		}
		id, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok {
			continue
		}
		e, err := read(filepath.Join(j.dir, f.Name()), fleet.InstanceID(id), node)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		entries = append(entries, e)
	}
	return slices.Clip(entries), damaged, nil
}

func read(path string, id fleet.InstanceID, node fleet.NodeID) (Entry, error) {
	var e Entry
	b, err := os.ReadFile(path)
	if err != nil {
		return e, errs.As(errs.Unavailable, "journal.read", err)
	}
	var head struct {
		Version int `json:"version"`
	}
	err = json.Unmarshal(b, &head)
	if err == nil && head.Version > version {
		return e, errs.New(errs.Conflict, "%s is of a newer version of the program (format %d, this one reads up to %d): what the store holds of the instance is used instead", path, head.Version, version)
	}
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	p := e.Machine.Placement
	switch {
	case err != nil:
		return e, errs.New(errs.Internal, "%s is damaged (%v): what the store holds of the instance is used instead", path, err)
	case p.Instance != id:
		return e, errs.New(errs.Internal, "%s holds an entry of another instance (%q): what the store holds of this one is used instead", path, p.Instance)
	case p.Node != node:
		return e, errs.New(errs.Conflict, "%s is of node %q and this agent is node %q: it is left alone; start the agent as that node, or delete the file", path, p.Node, node)
	}
	return e, nil
}

// Write replaces an instance's entry. Exhausted when the disk is full.
func (j *Journal) Write(e Entry) error {
	e.Version = version
	b, err := json.Marshal(e)
	if err != nil {
		return errs.As(errs.Internal, "journal.Write", err)
	}
	path := j.path(e.Machine.Placement.Instance)
	err = replace(path, b, unflushed)
	if errors.Is(err, fs.ErrNotExist) { // somebody deleted the directory under us
		err = errors.Join(os.MkdirAll(j.dir, 0o700), replace(path, b, unflushed))
	}
	switch {
	case err == nil:
		j.keep()
	case full(err) && j.spend():
		err = replace(path, b, unflushed)
	}
	if full(err) {
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

// How replace leaves a file: on the disk, or wherever the kernel keeps it.
const (
	flushed   = true
	unflushed = false
)

func replace(path string, content []byte, flush bool) error {
	tmp := path + partial
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && flush {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := os.Rename(tmp, path); err != nil || !flush {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
