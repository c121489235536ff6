// Package journal is the agent's memory on disk: a small file per instance that is written
// before each action, so that an agent finds its processes again after it was killed at any
// moment.
//
// Invariants:
//   - A file contains the latest states of its instance, one per line. The last complete line
//     counts, so an interrupted write leaves the previous line. The file is replaced when it
//     has grown, and after a failed write.
//   - A file that cannot be read does not affect others: it is reported and ignored. The same
//     applies to a file of another node or of a newer version, because guessing its content
//     could end a process.
//   - The directory belongs to one agent at a time (flock) and to one node forever (its
//     UUID). The holder of the lock knows that all predecessors have ended.
//   - A directory that had an identity never gets another one automatically.
//
// Entries are not flushed to the disk: they must survive the agent, not the host. After a
// power cut all processes are gone as well, and lost entries are restored from the store. The
// identity and the holder are flushed.
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
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// version is the version of the entry format. The first format has none.
const version = 1

// Entry is the stored state of one instance.
type Entry struct {
	// Version is the format's version. Write sets it.
	Version int           `json:"version"`
	Machine machine.State `json:"machine"`
	// Token is the instance's token. It is stored in clear text only here.
	Token string `json:"token,omitempty"`
	// NodeValues are the node's values that its directory was built with; nil in entries of
	// earlier agents.
	NodeValues *NodeValues `json:"around,omitempty"`
	// UID is the user and group that it runs as, and that own its directory. 0 means a named user, a
	// container, or an entry of an earlier agent.
	UID int `json:"uid,omitempty"`
	// Process identifies its latest process.
	Process runtime.Identity `json:"process"`
	// ProcessRun is the run of Process.
	ProcessRun int `json:"processRun,omitempty"`
	// LogFrom is the offset of its latest process's output.
	LogFrom int64 `json:"logFrom,omitempty"`
}

// NodeValues are the placeholder values that come from the node's record, its settings and its
// variable providers. They are stored because an instance's files keep the old values when the
// node's change.
type NodeValues struct {
	Address   string            `json:"address,omitempty"`
	Variables map[string]string `json:"variables,omitempty"`
	APIURL    string            `json:"apiUrl,omitempty"`
	// AgentURL is empty in entries of earlier agents.
	AgentURL string `json:"agentUrl,omitempty"`
}

// Journal is an open journal. Write and Remove may be called concurrently for different instances.
type Journal struct {
	dir           string
	lock          *os.File
	uuid          string
	holder        string
	holderChanged bool
	rebooted      bool

	mu       sync.Mutex
	reserved bool // the reserve exists
	// sizes are the sizes of the files to which lines may be appended: this agent wrote all
	// of their content, and the last write succeeded.
	sizes map[fleet.InstanceID]int
}

const (
	suffix  = ".json"
	partial = ".tmp"
	// fileLimit is the size in bytes at which a file is replaced. Appending costs a hundredth
	// of a replacement, and most instances never reach the limit.
	fileLimit = 32 << 10
)

// Open locks dir, creates missing files and reads its identity. newUUID creates the identity
// of a new directory. boot identifies the current boot. Conflict if another agent holds the
// lock, Invalid if the directory cannot be used.
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
			Message: fmt.Sprintf("%s is used by another agent: stop it or use another directory", dir),
		}
	}
	j := &Journal{dir: filepath.Join(dir, "journal"), lock: lock, sizes: map[fleet.InstanceID]int{}}
	if err := j.identify(dir, boot, newUUID); err != nil {
		j.Close()
		return nil, err
	}
	j.makeReserve()
	return j, nil
}

// Close releases the lock.
func (j *Journal) Close() { _ = j.lock.Close() }

// Load reads node's entries in the order of their ids. damaged has an error for each file that
// is ignored. Those files stay.
func (j *Journal) Load(node fleet.NodeID) (entries []Entry, damaged []error, err error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, nil, errs.WrapAs(errs.Unavailable, "journal.Load", err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), partial) { // an interrupted write
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
		return e, errs.WrapAs(errs.Unavailable, "journal.read", err)
	}
	b = lastLine(b)
	var head struct {
		Version int `json:"version"`
	}
	err = json.Unmarshal(b, &head)
	if err == nil && head.Version > version {
		return e, errs.New(errs.Conflict, "%s is of a newer version of the program (format %d, this one reads up to %d): the store's records of the instance are used instead", path, head.Version, version)
	}
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	p := e.Machine.Placement
	switch {
	case err != nil:
		return e, errs.New(errs.Internal, "%s is damaged (%v): the store's records of the instance are used instead", path, err)
	case p.Instance != id:
		return e, errs.New(errs.Internal, "%s contains an entry of another instance (%q): the store's records of this one are used instead", path, p.Instance)
	case p.Node != node:
		return e, errs.New(errs.Conflict, "%s is of node %q and this agent is node %q: it is left alone; start the agent as that node, or delete the file", path, p.Node, node)
	}
	return e, nil
}

// lastLine returns the last complete line, or everything if there is none, as in the first format.
func lastLine(b []byte) []byte {
	whole := bytes.LastIndexByte(b, '\n')
	if whole < 0 {
		return b
	}
	return b[bytes.LastIndexByte(b[:whole], '\n')+1 : whole]
}

// Write stores an instance's entry. Exhausted if the disk is full.
func (j *Journal) Write(e Entry) error {
	defer trace.StartRegion(context.Background(), "journal").End()
	e.Version = version
	line, err := json.Marshal(e)
	if err != nil {
		return errs.WrapAs(errs.Internal, "journal.Write", err)
	}
	id, line := e.Machine.Placement.Instance, append(line, '\n')
	if j.appendLine(id, line) {
		return nil
	}
	err = j.replaceFile(id, line)
	if full(err) {
		return errs.WrapAs(errs.Exhausted, "journal.Write", err)
	}
	return errs.WrapAs(errs.Unavailable, "journal.Write", err)
}

// appendLine appends a line to an instance's file. It returns false if the file has to be replaced
// instead.
func (j *Journal) appendLine(id fleet.InstanceID, line []byte) bool {
	j.mu.Lock()
	size, known := j.sizes[id]
	delete(j.sizes, id) // until the write has succeeded
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
	j.setSize(id, size+len(line))
	return true
}

// replaceFile replaces an instance's file.
func (j *Journal) replaceFile(id fleet.InstanceID, line []byte) error {
	path := j.path(id)
	err := replace(path, line, unflushed)
	if errors.Is(err, fs.ErrNotExist) { // the directory was deleted
		err = errors.Join(os.MkdirAll(j.dir, 0o700), replace(path, line, unflushed))
	}
	switch {
	case err == nil:
		j.makeReserve()
	case full(err) && j.freeReserve():
		err = replace(path, line, unflushed)
	}
	if err == nil {
		j.setSize(id, len(line))
	}
	return err
}

// setSize sets the size of a file to which lines may be appended.
func (j *Journal) setSize(id fleet.InstanceID, size int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sizes[id] = size
}

// Remove deletes an instance's entry.
func (j *Journal) Remove(id fleet.InstanceID) error {
	j.mu.Lock()
	delete(j.sizes, id)
	j.mu.Unlock()
	err := os.Remove(j.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.WrapAs(errs.Unavailable, "journal.Remove", err)
}

// Holds reports whether there may be an entry of an instance, including one that cannot be
// read.
func (j *Journal) Holds(id fleet.InstanceID) bool {
	_, err := os.Lstat(j.path(id))
	return !errors.Is(err, fs.ErrNotExist)
}

func (j *Journal) path(id fleet.InstanceID) string {
	return filepath.Join(j.dir, string(id)+suffix)
}

// Whether replace flushes the file to the disk.
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
