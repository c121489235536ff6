// Package claim keeps the lock file in a static instance's directory: which run the
// directory belongs to. It makes the late copy of an instance, one that was frozen
// with its machine while another took over, refuse to start again.
//
// Invariants:
//   - What a directory was claimed by only rises: by generation and placement epoch
//     for one instance, by epoch and revision of the placement for instances that
//     have had the directory one after the other on several nodes.
//   - On one data directory instances follow each other in any order: there is one
//     agent on it, and the lock tells whether anything of the holder runs. So an etcd
//     that was rebuilt, and counts anew, bars no node from its own directories.
//   - While a run lives its processes hold a lock on the file, inherited from the
//     agent that started them. Nobody else takes the directory as long as the file's
//     system honours that, on one host always.
//   - The file is written in place and in one piece, so that the lock stays on it.
//   - The file of a run that is over is no obstacle for a later one.
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

// FileName is the lock file's name in the instance's directory. No template brings it.
const FileName = ".orrery-lock"

// Claim is the right of one generation of an instance to a directory.
type Claim struct {
	Instance   fleet.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	// Epoch, Rev and PlacedAt are the placement's. Rev is 0 where it is not known, since
	// an earlier agent read it; then the clock has to do.
	Epoch    int64        `json:"epoch"`
	Rev      int64        `json:"rev,omitempty"`
	PlacedAt time.Time    `json:"placedAt"`
	Node     fleet.NodeID `json:"node"`
	// DataUUID identifies the data directory of the node's agent.
	DataUUID string `json:"dataUuid"`
}

// Of is the claim of a placement on the node whose data directory is given.
func Of(p fleet.Placement, dataUUID string) Claim {
	return Claim{
		Instance: p.Instance, Generation: p.Generation, Epoch: p.Epoch, Rev: p.ModRev, PlacedAt: p.PlacedAt.UTC(),
		Node: p.Node, DataUUID: dataUUID,
	}
}

// String names the claim for people.
func (c Claim) String() string {
	return fmt.Sprintf("generation %d of instance %s (placement epoch %d) on node %s", c.Generation, c.Instance, c.Epoch, c.Node)
}

// yields reports whether the holder's claim gives way to c: an older one does, and
// the very same, as for a restart in place. Nothing of the holder runs on this host.
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

// size is the length of the file: it is written in one piece.
const size = 512

// Take claims a directory. Conflict when it belongs to another run, Invalid when
// the lock file makes no sense; both say what to do. The directory stays claimed
// after the lock was released.
func Take(dir string, c Claim) (*Lock, error) {
	path := filepath.Join(dir, FileName)
	// Servers may write here: a link that one of them put in the way is not followed.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, damaged(path)
	}
	if err != nil {
		return nil, errs.As(errs.Unavailable, "claim.Take", err)
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
		return taken(path, c, holder, "whose processes still hold its lock: end them first")
	case locked != nil:
		return errs.As(errs.Unavailable, "claim.Take", locked)
	case err != nil:
		return err
	case holder != nil && !holder.yields(c):
		return taken(path, c, holder, "which came later or is another copy: if that one is lost for good, remove the file")
	case holder != nil && holder.Instance == c.Instance && holder.Generation == c.Generation && holder.Epoch == c.Epoch && c.Rev == 0:
		c.Rev = holder.Rev // it is the same placement
	}
	if holder != nil && *holder == c {
		return nil
	}
	return l.write(c)
}

// holder is who claimed the directory last; nil when nobody did.
func (l *Lock) holder(path string) (*Claim, error) {
	b, err := io.ReadAll(io.LimitReader(l.f, 2*size))
	if err != nil {
		return nil, errs.As(errs.Unavailable, "claim.Take", err)
	}
	if len(b) == 0 { // made, and then nothing more: nobody ran with it
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
		return errs.As(errs.Internal, "claim.Take", err)
	}
	record := append(b, bytes.Repeat([]byte(" "), max(0, size-1-len(b)))...)
	_, err = l.f.WriteAt(append(record, '\n'), 0)
	return errs.As(errs.Unavailable, "claim.Take", errors.Join(err, l.f.Sync()))
}

func taken(path string, c Claim, holder *Claim, why string) error {
	by := "a run that left no name"
	if holder != nil {
		by = holder.String()
	}
	return &errs.Error{Op: "claim.Take", Kind: errs.Conflict, Message: fmt.Sprintf(
		"%s may not start in %s: it belongs to %s, %s (%s)", c, filepath.Dir(path), by, why, path)}
}

func damaged(path string) error {
	return &errs.Error{Op: "claim.Take", Kind: errs.Invalid, Message: fmt.Sprintf(
		"the lock file %s is damaged: make sure that no other copy of the instance runs, then remove it", path)}
}

// File is what a run inherits to hold the lock. It stays the lock's.
func (l *Lock) File() *os.File { return l.f }

// Pass closes the lock here; the run that inherited it holds it.
func (l *Lock) Pass() { _ = l.f.Close() }

// Release lets the lock go, also for whoever has inherited it.
func (l *Lock) Release() {
	_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN)
	_ = l.f.Close()
}
