package directory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// lately is the period in which removals are counted together, because a tree of templates
// is not deleted in one instant.
const lately = time.Minute

// seenAs is the state of a template when it was last read.
type seenAs struct {
	// digest is that of the manifest that was published, or that was left to another
	// replica.
	digest string
	// group and own are the devices of the group's directory and of the template's.
	group, own uint64
}

// yields reports whether this replica leaves a template as another replica published it:
// the files here differ, but have not changed since they were last read. Otherwise two
// replicas with different directories would publish alternately for ever.
func yields(id, digest string, seen seenAs, head content.TemplateHead) bool {
	switch {
	case !publishedHere(head), head.SourceDigest == digest:
		return false
	case seen.digest == "": // just started: the files may have changed meanwhile
		return head.Directory != id && head.Directory != ""
	}
	return seen.digest == digest
}

// publishedHere reports whether a head was published from any template directory.
func publishedHere(head content.TemplateHead) bool {
	return head.ModRev != 0 && (head.Origin == content.DirectoryOrigin || head.Origin == "" && head.SourceDigest != "")
}

// owns reports whether a head is removed when its directory here is gone. ours is false if
// the head belongs to another replica's directory, or may. known is false if this replica
// is not certain to have seen the template in this directory: the directory may be a copy,
// or the group is empty and nothing may be mounted there.
func (d *Directory) owns(head content.TemplateHead, bare map[string]bool) (ours, known bool) {
	_, seen := d.held[head.TemplateRef]
	this := d.id != "" && head.Directory == d.id
	switch {
	case seen && (this || d.id != "" && head.Directory == ""):
		return true, true
	case this && d.had(head.TemplateRef.String()):
		return true, !bare[head.Group]
	case d.alone, this && !d.shared:
		return true, seen
	}
	return false, false
}

// countOthers finds out whether other replicas are alive, which may have directories too,
// and whether one of them has this directory or a copy of it.
func (d *Directory) countOthers(ctx context.Context) {
	n, err := 0, error(nil)
	if d.cfg.Others != nil {
		n, err = d.cfg.Others(ctx)
	}
	d.alone = err == nil && n == 0
	all, _, err := store.List(ctx, d.cfg.Store, keys.TemplateDirectories())
	d.shared = !d.alone && (err != nil || slices.ContainsFunc(all, func(one content.TemplateDirectory) bool {
		return one.Replica != d.cfg.Replica && one.ID == d.id
	}))
}

// removeGone removes the templates that this directory published and no longer holds,
// within the limits of cluster.DecideRemoval. It then writes the directory's status.
func (d *Directory) removeGone(ctx context.Context) {
	d.leaving, d.statusStale = false, false
	status, removed, err := d.decide(ctx)
	if removed && err == nil { // the status must count what is left
		status, _, err = d.decide(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		status.State, status.Message = content.SourceFailed, errs.MessageOf(err)
		d.complain("", "no template is removed", err)
	}
	d.tellRefused(&status)
	if err := d.tell(ctx, status); err != nil && ctx.Err() == nil {
		d.complain("status", "the status of the template directory cannot be written", err)
		return
	}
	d.confirmLook = false
}

// decide removes templates whose directory is gone, unless the removal is held. removed
// reports whether it removed any.
func (d *Directory) decide(ctx context.Context) (status content.TemplateDirectory, removed bool, err error) {
	status = content.TemplateDirectory{Replica: d.cfg.Replica, State: content.SourceInSync}
	if err := d.recall(ctx); err != nil {
		return status, false, err
	}
	if d.memory.Removed == nil {
		d.memory.Removed = map[string]time.Time{}
	}
	heads, err := d.cfg.Service.Published(ctx, content.DirectoryOrigin)
	if err != nil {
		return status, false, err
	}
	present, bare, empty, err := d.present()
	if err != nil {
		return status, false, &errs.Error{Kind: errs.Unavailable, Message: "the template directory cannot be read; templates stay as they are", Err: err}
	}
	// The ID is read last, so that it belongs to the directory that was listed.
	id, err := identify(d.cfg.Dir, empty)
	if err != nil {
		return status, false, err
	}
	if id != d.id {
		d.rescanSoon = true
		return status, false, nil
	}
	status.ID = id
	d.remember(heads)
	published, byName := map[string]bool{}, map[string]content.TemplateHead{}
	for _, head := range heads {
		if ours, known := d.owns(head, bare); ours {
			published[head.TemplateRef.String()], byName[head.TemplateRef.String()] = known, head
		}
	}
	for name, at := range d.memory.Removed {
		switch _, back := byName[name]; {
		case back, !d.holding && d.cfg.Now().Sub(at) > lately:
			delete(d.memory.Removed, name)
		default:
			published[name] = true
		}
	}
	is := func(name string) bool { return present[content.ParseTemplateRef(name)] }
	r := cluster.DecideRemoval(published, is, false)
	revision := revisionOf(byName, func(name string) bool { // what is left waits for a confirmation
		return !slices.Contains(r.Kept, name) && !((r.Held || len(present) == 0) && slices.Contains(r.Go, name))
	})
	if revision != "" && revision == d.confirmed {
		r = cluster.DecideRemoval(published, is, true)
	}
	all := len(r.Go)
	r.Go = slices.DeleteFunc(r.Go, func(name string) bool { _, ok := byName[name]; return !ok }) // removed recently
	r.Published -= all - len(r.Go)
	// An empty directory is probably a mistake or not mounted.
	r.Held = len(r.Go) > 0 && (r.Held || len(present) == 0 && d.confirmed != revision)
	d.holding = r.Held
	if status.Message = r.Tell("templates", revision); status.Message != "" {
		status.State, status.Held = content.SourceHeld, revision
		d.complain("", status.Message, nil)
	} else {
		delete(d.complained, "")
	}
	switch {
	case r.Held:
		return status, false, nil
	case len(present) == 0 && len(heads) > 0 && status.Message == "":
		return status, false, errs.New(errs.Invalid, "the template directory is empty: is it mounted? nothing is removed for it")
	}
	if len(r.Go) == 0 {
		return status, false, nil
	}
	for _, name := range r.Go {
		d.memory.Removed[name] = d.cfg.Now().UTC()
	}
	if err := d.tell(ctx, status); err != nil { // first, so that a restart does not forget the removals
		return status, false, err
	}
	for _, name := range r.Go {
		d.retract(ctx, byName[name])
	}
	return status, true, nil
}

// revisionOf identifies a set of removals that waits for confirmation; "" means that none
// waits. A template that comes back and disappears again gets a new revision, because that
// removal was not confirmed.
func revisionOf(heads map[string]content.TemplateHead, settled func(name string) bool) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(heads)), settled)
	if len(names) == 0 {
		return ""
	}
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintln(&text, name, heads[name].CreateRev)
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:8])
}

// present lists the templates in the directory. It includes those that disappeared together
// with a file system mounted below it. bare lists the empty groups; empty is true when the
// directory holds no directory at all.
func (d *Directory) present() (there map[content.TemplateRef]bool, bare map[string]bool, empty bool, err error) {
	groups, err := os.ReadDir(d.cfg.Dir)
	if err != nil {
		return nil, nil, false, err
	}
	there, bare, empty = map[content.TemplateRef]bool{}, map[string]bool{}, true
	for _, g := range groups {
		if !g.IsDir() {
			continue
		}
		empty = false
		names, err := os.ReadDir(filepath.Join(d.cfg.Dir, g.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, false, err
		}
		bare[g.Name()] = err == nil && len(names) == 0
		for _, n := range names {
			if n.IsDir() {
				there[content.TemplateRef{Group: g.Name(), Name: n.Name()}] = true
			}
		}
	}
	for ref, seen := range d.held {
		if now := deviceOf(filepath.Join(d.cfg.Dir, ref.Group)); !there[ref] && now != 0 && now != seen.group {
			there[ref] = true
			d.complain(ref.Group, "another file system is where the template group was: is something not mounted? its templates stay", nil)
		}
	}
	return there, bare, empty, nil
}

func (d *Directory) retract(ctx context.Context, head content.TemplateHead) {
	ref := head.TemplateRef
	if err := d.cfg.Service.RetractHead(ctx, head); err != nil {
		d.complain(ref.String(), "template not removed", err)
		d.rescanSoon = true
		return
	}
	delete(d.held, ref)
	prefix := filepath.Join(d.cfg.Dir, ref.Group, ref.Name) + string(filepath.Separator)
	maps.DeleteFunc(d.scanner.seen, func(path string, _ hashed) bool { return strings.HasPrefix(path, prefix) })
}

// tell writes the directory's status and memory if they have changed. It removes the status
// of replicas that no longer live.
func (d *Directory) tell(ctx context.Context, status content.TemplateDirectory) error {
	all, _, err := store.List(ctx, d.cfg.Store, keys.TemplateDirectories())
	if err != nil {
		return err
	}
	var before content.TemplateDirectory
	for _, one := range all {
		if one.Replica == d.cfg.Replica {
			before = one
			continue
		}
		_, err := d.cfg.Store.Commit(ctx, store.Txn{
			Guards: []store.Guard{store.Missing(keys.Session("templatesvc", one.Replica))},
			Writes: []store.Write{store.Remove(keys.TemplateDirectory(one.Replica), one.ModRev)},
		})
		if err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) { // the replica lives
			return err
		}
	}
	writes, err := d.tellMemory(ctx, status.State == content.SourceHeld)
	if err != nil {
		return err
	}
	if !d.confirmLook && before.ModRev != 0 && before.ID == status.ID && before.State == status.State && before.Message == status.Message && before.Held == status.Held &&
		slices.Equal(before.Items, status.Items) && len(writes) == 0 {
		return nil
	}
	status.At, status.Since = d.cfg.Now().UTC(), before.Since
	if status.Since.IsZero() {
		status.Since = status.At
	}
	_, err = d.cfg.Store.Commit(ctx, store.Txn{Writes: append(writes, store.Replace(keys.TemplateDirectory(d.cfg.Replica), status, before.ModRev))})
	return err
}
