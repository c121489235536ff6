// Package claim manages the lock file in a static instance's directory, which records the run
// that the directory belongs to. A late copy of an instance, which was frozen with its
// machine while another node took over, cannot start again.
//
// Invariants:
//   - The claim on a directory only increases: by generation and placement epoch for one
//     instance, and by epoch and revision of the placement for instances that used the directory
//     on several nodes.
//   - On one data directory, instances may follow each other in any order, because only one agent
//     uses it and the file lock shows whether the holder still runs. So a rebuilt etcd, with lower
//     revisions, does not lock a node out of its own directories.
//   - The processes of a run inherit a file lock (flock) from the agent. While one lives, no
//     other run can take the directory, if the filesystem supports it; on one host always.
//   - The file is written in place by one write, so that the lock stays on the same file.
//   - The file of an ended run does not block a later run.
package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// FileName is the lock file's name in the instance's directory. Templates cannot replace it.
const FileName = ".orrery-lock"

// MarkName is the file in a directory that names its latest move; see package datamove. By it the target
// notices that the directory is on storage that both nodes share, or that it is installed already. Neither
// it nor the lock file is data of the instance.
const MarkName = ".orrery-move"

// Claim is the claim of one generation of an instance to a directory.
type Claim struct {
	Instance   fleet.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	// Epoch, Rev and PlacedAt are those of the placement. Rev is 0 if it is unknown; then
	// PlacedAt is compared.
	Epoch    int64        `json:"epoch"`
	Rev      int64        `json:"rev,omitempty"`
	PlacedAt time.Time    `json:"placedAt"`
	Node     fleet.NodeID `json:"node"`
	// DataUUID identifies the data directory of the node's agent.
	DataUUID string `json:"dataUuid"`
}

// Of returns the claim of a placement on the node with the given data directory.
func Of(p fleet.Placement, dataUUID string) Claim {
	return Claim{
		Instance: p.Instance, Generation: p.Generation, Epoch: p.Epoch, Rev: p.ModRev, PlacedAt: p.PlacedAt.UTC(),
		Node: p.Node, DataUUID: dataUUID,
	}
}

// String describes the claim for messages.
func (c Claim) String() string {
	return fmt.Sprintf("generation %d of instance %s (placement epoch %d) on node %s", c.Generation, c.Instance, c.Epoch, c.Node)
}

// yields reports whether c may replace the holder's claim: if c is later, or equal, as for a
// restart in place. No process of the holder runs on this host.
func (holder Claim) yields(c Claim) bool {
	switch {
	case holder.Instance != c.Instance && holder.DataUUID == c.DataUUID:
		return true
	case holder.Instance != c.Instance && holder.Epoch != c.Epoch:
		return holder.Epoch < c.Epoch
	case holder.Instance != c.Instance && holder.Rev != 0 && c.Rev != 0:
		return holder.Rev < c.Rev
	case holder.Instance != c.Instance:
		return holder.PlacedAt.Before(c.PlacedAt)
	case holder.Generation != c.Generation:
		return holder.Generation < c.Generation
	case holder.Epoch != c.Epoch:
		return holder.Epoch < c.Epoch
	}
	return holder.Node == c.Node && holder.DataUUID == c.DataUUID
}

// Lock is a claimed directory.
type Lock struct{ f *os.File }

// size is the length of the file in bytes. It is written by one write.
const size = 512

// Take claims a directory. It returns Conflict if the directory belongs to another run, and
// Invalid if the lock file is unusable; both say what to do. The claim outlives the lock.
func Take(dir string, c Claim) (*Lock, error) {
	path := filepath.Join(dir, FileName)
	for attempt := 0; ; attempt++ {
		l, err := takeOnce(path, c)
		if err != nil || l.isAt(path) || attempt == maxReplaced {
			return l, err
		}
		l.Release() // the directory was replaced meanwhile, see Keep
	}
}

// maxReplaced is how often the directory may be replaced while it is claimed.
const maxReplaced = 10

// isAt reports whether the locked file is still at its path.
func (l *Lock) isAt(path string) bool {
	own, err := l.f.Stat()
	there, missing := os.Lstat(path)
	return err == nil && missing == nil && os.SameFile(own, there)
}

func takeOnce(path string, c Claim) (*Lock, error) {
	// Servers may write here, so do not follow a symlink.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, damaged(path)
	}
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "claim.Take", err)
	}
	l := &Lock{f}
	if err := l.claim(path, c); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

func (l *Lock) claim(path string, c Claim) error {
	locked := unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	holder, err := l.holder(path)
	switch {
	case errors.Is(locked, unix.EWOULDBLOCK):
		return taken(path, c, holder, "whose processes still hold its lock; end them first")
	case locked != nil:
		return errs.WrapAs(errs.Unavailable, "claim.Take", locked)
	case err != nil:
		return err
	case holder != nil && !holder.yields(c):
		return taken(path, c, holder, "which is later or another copy; if that copy is permanently lost, remove the file")
	case holder != nil && holder.Instance == c.Instance && holder.Generation == c.Generation && holder.Epoch == c.Epoch && c.Rev == 0:
		c.Rev = holder.Rev // the same placement
	}
	if holder != nil && *holder == c {
		return nil
	}
	return l.write(c)
}

// holder returns the last claim of the directory; nil if there is none.
func (l *Lock) holder(path string) (*Claim, error) {
	if info, err := l.f.Stat(); err != nil || !info.Mode().IsRegular() { // a pipe would be read forever
		return nil, damaged(path)
	}
	b, err := io.ReadAll(io.LimitReader(l.f, 2*size))
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "claim.Take", err)
	}
	if len(b) == 0 { // created, but no run has started with it
		return nil, nil
	}
	c, ok := parse(b)
	if !ok {
		return nil, damaged(path)
	}
	return &c, nil
}

func parse(b []byte) (c Claim, ok bool) {
	err := json.Unmarshal(b, &c)
	return c, err == nil && c.Instance != "" && c.Generation > 0 && c.Node != ""
}

func (l *Lock) write(c Claim) error {
	b, err := json.Marshal(c)
	if err != nil {
		return errs.WrapAs(errs.Internal, "claim.Take", err)
	}
	record := append(b, bytes.Repeat([]byte(" "), max(0, size-1-len(b)))...)
	_, err = l.f.WriteAt(append(record, '\n'), 0)
	return errs.WrapAs(errs.Unavailable, "claim.Take", errors.Join(err, l.f.Sync()))
}

func taken(path string, c Claim, holder *Claim, why string) error {
	by := "an unknown run"
	if holder != nil {
		by = holder.String()
	}
	return &errs.Error{Op: "claim.Take", Kind: errs.Conflict, Message: fmt.Sprintf(
		"%s may not start in %s: it belongs to %s, %s (%s)", c, filepath.Dir(path), by, why, path)}
}

func damaged(path string) error {
	return &errs.Error{Op: "claim.Take", Kind: errs.Invalid, Message: fmt.Sprintf(
		"the lock file %s is corrupt: make sure that no other copy of the instance runs, then remove it", path)}
}

// File returns the file that a run inherits to hold the lock. The Lock owns it.
func (l *Lock) File() *os.File { return l.f }

// Pass closes the agent's descriptor. The run that inherited the file keeps the lock.
func (l *Lock) Pass() { _ = l.f.Close() }

// Release unlocks the directory, also for processes that inherited the file.
func (l *Lock) Release() {
	_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN)
	_ = l.f.Close()
}

// Keep locks a directory that another one replaces, and writes its claim to the other one. The caller calls
// release after the replacement. Conflict if a run holds the directory, or if a later generation of the
// instance has claimed it.
func Keep(dir, other string, instance fleet.InstanceID, generation int64) (release func(), err error) {
	path := filepath.Join(dir, FileName)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) { // no run has claimed it
		return func() {}, nil
	}
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "claim.Keep", err)
	}
	l := &Lock{f}
	if err := l.copyTo(path, filepath.Join(other, FileName), instance, generation); err != nil {
		l.Release()
		return nil, err
	}
	return l.Release, nil
}

func (l *Lock) copyTo(path, other string, instance fleet.InstanceID, generation int64) error {
	if err := unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errs.New(errs.Conflict, "processes of the instance use its directory: stop it first (%s)", path)
	} else if err != nil {
		return errs.WrapAs(errs.Unavailable, "claim.Keep", err)
	}
	last, err := l.holder(path)
	if err != nil || last == nil {
		return err
	}
	if last.Instance != instance || last.Generation > generation {
		return errs.New(errs.Conflict, "the directory was prepared for another start meanwhile: stop the instance, and try again")
	}
	f, err := os.OpenFile(other, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "claim.Keep", err)
	}
	defer f.Close()
	return (&Lock{f}).write(*last)
}

// Holder returns the last claim of a directory, and whether a run still holds it. It claims nothing.
// ok is false if no run has claimed the directory.
func Holder(dir string) (c Claim, held, ok bool, err error) {
	path := filepath.Join(dir, FileName)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return c, false, false, nil
	}
	if err != nil {
		return c, false, false, errs.WrapAs(errs.Unavailable, "claim.Holder", err)
	}
	l := &Lock{f}
	locked := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if locked == nil {
		defer l.Release()
	} else {
		defer f.Close()
	}
	if locked != nil && !errors.Is(locked, unix.EWOULDBLOCK) {
		return c, false, false, errs.WrapAs(errs.Unavailable, "claim.Holder", locked)
	}
	last, err := l.holder(path)
	if err != nil || last == nil {
		return c, locked != nil, false, err
	}
	return *last, locked != nil, true, nil
}
