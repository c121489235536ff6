package source

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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// lately is how long removals count together: a tree of templates does not go at once.
const lately = time.Minute

// seenAs is a template as it was read last.
type seenAs struct {
	// digest of the manifest that was published, or left to another replica.
	digest string
	// group and own are the devices that its group and itself were on.
	group, own uint64
}

// yields reports whether a template is left as another replica published it: this
// directory holds something else, but has not changed since it was seen. Else two
// replicas whose directories differ would publish in turns for ever.
func yields(id, digest string, seen seenAs, head fleet.TemplateHead) bool {
	switch {
	case !publishedHere(head), head.SourceDigest == digest:
		return false
	case seen.digest == "": // just started: it may have changed meanwhile
		return head.Directory != id && head.Directory != ""
	}
	return seen.digest == digest
}

// publishedHere reports whether any directory published a head.
func publishedHere(head fleet.TemplateHead) bool {
	return head.ModRev != 0 && (head.Origin == fleet.DirectoryOrigin || head.Origin == "" && head.SourceDigest != "")
}

// owns reports whether a head that a directory published goes with its directory here.
// ours is false for what belongs to another replica's directory, or may; known is false
// for what this replica is not known to have seen in this directory, of which another may
// be a copy, and for a group that is empty and was not seen otherwise since the start:
// something may not be mounted there.
func (d *Directory) owns(head fleet.TemplateHead, bare map[string]bool) (ours, known bool) {
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

// countOthers finds out whether other replicas live, which may have directories too,
// and whether one has this very directory, or a copy of it.
func (d *Directory) countOthers(ctx context.Context) {
	n, err := 0, error(nil)
	if d.others != nil {
		n, err = d.others(ctx)
	}
	d.alone = err == nil && n == 0
	all, _, err := store.List(ctx, d.store, store.TemplateDirectories())
	d.shared = !d.alone && (err != nil || slices.ContainsFunc(all, func(one fleet.TemplateDirectory) bool {
		return one.Replica != d.replica && one.ID == d.id
	}))
}

// removeGone removes what this directory published and has no more, as fleet.DecideRemoval
// says, and tells how the directory stands.
func (d *Directory) removeGone(ctx context.Context) {
	d.leaving, d.untold = false, false
	status, removed, err := d.decide(ctx)
	if removed && err == nil { // what is told counts what there is now
		status, _, err = d.decide(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		status.State, status.Message = fleet.SourceFailed, errs.MessageOf(err)
		d.complain("", "no template is removed", err)
	}
	d.tellRefused(&status)
	if err := d.tell(ctx, status); err != nil && ctx.Err() == nil {
		d.complain("status", "the state of the template directory is not told", err)
		return
	}
	d.fresh = false
}

// decide removes what goes, unless it is held, and says whether anything went.
func (d *Directory) decide(ctx context.Context) (status fleet.TemplateDirectory, removed bool, err error) {
	status = fleet.TemplateDirectory{Replica: d.replica, State: fleet.SourceInSync}
	if err := d.recall(ctx); err != nil {
		return status, false, err
	}
	if d.memory.Removed == nil {
		d.memory.Removed = map[string]time.Time{}
	}
	heads, err := d.service.Published(ctx, fleet.DirectoryOrigin)
	if err != nil {
		return status, false, err
	}
	present, bare, empty, err := d.present()
	if err != nil {
		return status, false, &errs.Error{Kind: errs.Unavailable, Message: "the template directory cannot be read; templates stay as they are", Err: err}
	}
	// The id is read last: whatever is mounted now is what was listed.
	id, err := identify(d.dir, empty)
	if err != nil {
		return status, false, err
	}
	if id != d.id {
		d.anew = true
		return status, false, nil
	}
	status.ID = id
	d.remember(heads)
	published, byName := map[string]bool{}, map[string]fleet.TemplateHead{}
	for _, head := range heads {
		if ours, known := d.owns(head, bare); ours {
			published[head.TemplateRef.String()], byName[head.TemplateRef.String()] = known, head
		}
	}
	for name, at := range d.memory.Removed {
		switch _, back := byName[name]; {
		case back, !d.holding && d.now().Sub(at) > lately:
			delete(d.memory.Removed, name)
		default:
			published[name] = true
		}
	}
	is := func(name string) bool { return present[fleet.ParseTemplateRef(name)] }
	r := fleet.DecideRemoval(published, is, false)
	revision := revisionOf(byName, func(name string) bool { // or it goes unasked
		return !slices.Contains(r.Kept, name) && !((r.Held || len(present) == 0) && slices.Contains(r.Go, name))
	})
	if revision != "" && revision == d.confirmed {
		r = fleet.DecideRemoval(published, is, true)
	}
	all := len(r.Go)
	r.Go = slices.DeleteFunc(r.Go, func(name string) bool { _, ok := byName[name]; return !ok }) // what went lately
	r.Published -= all - len(r.Go)
	// An empty directory is a mistake, or one that is not mounted.
	r.Held = len(r.Go) > 0 && (r.Held || len(present) == 0 && d.confirmed != revision)
	d.holding = r.Held
	if status.Message = r.Tell("templates", revision); status.Message != "" {
		status.State, status.Held = fleet.SourceHeld, revision
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
		d.memory.Removed[name] = d.now().UTC()
	}
	if err := d.tell(ctx, status); err != nil { // or a start could forget what went
		return status, false, err
	}
	for _, name := range r.Go {
		d.retract(ctx, byName[name])
	}
	return status, true, nil
}

// revisionOf names what waits to be confirmed; "" for nothing. What comes back and goes
// again is another: nobody has confirmed that.
func revisionOf(heads map[string]fleet.TemplateHead, settled func(name string) bool) string {
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

// present are the templates of the directory, and those that went with a file system
// below it; bare are its groups in which nothing is, empty says that it holds no
// directory at all.
func (d *Directory) present() (there map[fleet.TemplateRef]bool, bare map[string]bool, empty bool, err error) {
	groups, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, nil, false, err
	}
	there, bare, empty = map[fleet.TemplateRef]bool{}, map[string]bool{}, true
	for _, g := range groups {
		if !g.IsDir() {
			continue
		}
		empty = false
		names, err := os.ReadDir(filepath.Join(d.dir, g.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, false, err
		}
		bare[g.Name()] = err == nil && len(names) == 0
		for _, n := range names {
			if n.IsDir() {
				there[fleet.TemplateRef{Group: g.Name(), Name: n.Name()}] = true
			}
		}
	}
	for ref, seen := range d.held {
		if now := deviceOf(filepath.Join(d.dir, ref.Group)); !there[ref] && now != 0 && now != seen.group {
			there[ref] = true
			d.complain(ref.Group, "another file system is where the template group was: is something not mounted? its templates stay", nil)
		}
	}
	return there, bare, empty, nil
}

func (d *Directory) retract(ctx context.Context, head fleet.TemplateHead) {
	ref := head.TemplateRef
	if err := d.service.RetractHead(ctx, head); err != nil {
		d.complain(ref.String(), "template not removed", err)
		d.anew = true
		return
	}
	delete(d.held, ref)
	prefix := filepath.Join(d.dir, ref.Group, ref.Name) + string(filepath.Separator)
	maps.DeleteFunc(d.scanner.seen, func(path string, _ hashed) bool { return strings.HasPrefix(path, prefix) })
}

// tell writes how the directory stands, and what is remembered of it, when that has
// changed. It removes how the directories of replicas stood that are no more.
func (d *Directory) tell(ctx context.Context, status fleet.TemplateDirectory) error {
	all, _, err := store.List(ctx, d.store, store.TemplateDirectories())
	if err != nil {
		return err
	}
	var before fleet.TemplateDirectory
	for _, one := range all {
		if one.Replica == d.replica {
			before = one
			continue
		}
		_, err := d.store.Commit(ctx, store.Txn{
			Guards: []store.Guard{store.Missing(store.SessionKey("templatesvc", one.Replica))},
			Writes: []store.Write{store.Remove(store.TemplateDirectoryKey(one.Replica), one.ModRev)},
		})
		if err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) { // it lives
			return err
		}
	}
	writes, err := d.tellMemory(ctx, status.State == fleet.SourceHeld)
	if err != nil {
		return err
	}
	if !d.fresh && before.ModRev != 0 && before.ID == status.ID && before.State == status.State && before.Message == status.Message && before.Held == status.Held &&
		slices.Equal(before.Items, status.Items) && len(writes) == 0 {
		return nil
	}
	status.At, status.Since = d.now().UTC(), before.Since
	if status.Since.IsZero() {
		status.Since = status.At
	}
	_, err = d.store.Commit(ctx, store.Txn{Writes: append(writes, store.Replace(store.TemplateDirectoryKey(d.replica), status, before.ModRev))})
	return err
}
