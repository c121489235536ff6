// Package journal is the agent's memory on disk: one small file per instance,
// written before anything is done, so that an agent that was killed at any moment
// finds its processes again.
//
// Invariants:
//   - A file holds the latest states of its instance, a line each: the last whole line
//     counts. A write that was cut short leaves the line before it. From time to time,
//     and after a failure, the file is replaced as a whole.
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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/trace"
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
	// Around is what of its node its directory was built with; nil in entries of earlier
	// agents.
	Around *Surroundings `json:"around,omitempty"`
	// Process identifies its latest process.
	Process runtime.Identity `json:"process"`
	// ProcessRun is the run Process belongs to.
	ProcessRun int `json:"processRun,omitempty"`
	// LogFrom is where in the instance's output its latest process began to print.
	LogFrom int64 `json:"logFrom,omitempty"`
}

// Surroundings are what of a node's record, settings and variable providers became values of placeholders: the
// files of an instance stay as they were made, whatever an agent is told later.
type Surroundings struct {
	Address   string            `json:"address,omitempty"`
	Variables map[string]string `json:"variables,omitempty"`
	APIURL    string            `json:"apiUrl,omitempty"`
	// AgentURL is empty in entries of earlier agents.
	AgentURL string `json:"agentUrl,omitempty"`
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
	// sizes are those of the files that may be added to: this agent wrote all of them,
	// and the last write succeeded.
	sizes map[fleet.InstanceID]int
}

const (
	suffix  = ".json"
	partial = ".tmp"
	// fileLimit is how many bytes a file has at most before it is replaced. To add to one
	// costs a hundredth of making one, and most instances' lives fit in.
	fileLimit = 32 << 10
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
	j := &Journal{dir: filepath.Join(dir, "journal"), lock: lock, sizes: map[fleet.InstanceID]int{}}
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
	b = latest(b)
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

// latest is the last whole line; all there is when there is none, as in the first format.
func latest(b []byte) []byte {
	whole := bytes.LastIndexByte(b, '\n')
	if whole < 0 {
		return b
	}
	return b[bytes.LastIndexByte(b[:whole], '\n')+1 : whole]
}

// Write puts an entry in the place of an instance's last one. Exhausted when the disk is full.
func (j *Journal) Write(e Entry) error {
	defer trace.StartRegion(context.Background(), "journal").End()
	e.Version = version
	line, err := json.Marshal(e)
	if err != nil {
		return errs.As(errs.Internal, "journal.Write", err)
	}
	id, line := e.Machine.Placement.Instance, append(line, '\n')
	if j.add(id, line) {
		return nil
	}
	err = j.renew(id, line)
	if full(err) {
		return errs.As(errs.Exhausted, "journal.Write", err)
	}
	return errs.As(errs.Unavailable, "journal.Write", err)
}

// add adds a line to an instance's file, and reports whether that is done. Where it
// fails, or is not to be done, the file is to be replaced.
func (j *Journal) add(id fleet.InstanceID, line []byte) bool {
	j.mu.Lock()
	size, known := j.sizes[id]
	delete(j.sizes, id) // until this one has succeeded
	j.mu.Unlock()
	if !known || size+len(line) > fileLimit {
		return false
	}
	f, err := os.OpenFile(j.path(id), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false
	}
	_, err = f.Write(line)
	if errors.Join(err, f.Close()) != nil {
		return false
	}
	j.wrote(id, size+len(line))
	return true
}

// renew replaces an instance's file.
func (j *Journal) renew(id fleet.InstanceID, line []byte) error {
	path := j.path(id)
	err := replace(path, line, unflushed)
	if errors.Is(err, fs.ErrNotExist) { // somebody deleted the directory under us
		err = errors.Join(os.MkdirAll(j.dir, 0o700), replace(path, line, unflushed))
	}
	switch {
	case err == nil:
		j.keep()
	case full(err) && j.spend():
		err = replace(path, line, unflushed)
	}
	if err == nil {
		j.wrote(id, len(line))
	}
	return err
}

// wrote notes the size of a file that may be added to.
func (j *Journal) wrote(id fleet.InstanceID, size int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sizes[id] = size
}

// Remove forgets an instance.
func (j *Journal) Remove(id fleet.InstanceID) error {
	j.mu.Lock()
	delete(j.sizes, id)
	j.mu.Unlock()
	err := os.Remove(j.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.As(errs.Unavailable, "journal.Remove", err)
}

// Holds is false only where it is known that nothing is remembered of an instance: an entry that
// cannot be used is one.
func (j *Journal) Holds(id fleet.InstanceID) bool {
	_, err := os.Lstat(j.path(id))
	return !errors.Is(err, fs.ErrNotExist)
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
