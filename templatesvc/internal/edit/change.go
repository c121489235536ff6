package edit

import (
	"path"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Default modes of new entries.
const (
	dirMode  = 0o755
	fileMode = 0o644
)

// Put writes a file. e has the content, and the path as the caller wrote it; Mode 0 keeps
// the mode of an existing file. With only, Put does not overwrite a file. It returns
// Malformed for an invalid path, AlreadyExists because of only, and Conflict when a
// directory or a link is at the path, or when a parent of the path is not a directory.
func (t *Tree) Put(e content.ManifestEntry, only bool) error {
	p, err := named(e.Path)
	if err != nil {
		return err
	}
	old, there := t.entries[p]
	switch {
	case there && only:
		return exists(p)
	case there && old.Kind == content.FileDir:
		return errs.New(errs.Conflict, "%s is a directory: delete it first", p)
	case there && old.Kind == content.FileSymlink:
		return errs.New(errs.Conflict, "%s is a link to %s: edit that, or delete the link first", p, old.Target)
	}
	if err := t.reachable(p); err != nil {
		return err
	}
	e.Path, e.Kind, e.Target = p, content.FileRegular, ""
	if e.Mode == 0 {
		e.Mode = fileMode
		if there {
			e.Mode = old.Mode
		}
	}
	t.add(e)
	return nil
}

// reachable returns Conflict if a parent of the path is not a directory.
func (t *Tree) reachable(p string) error {
	for dir := range parents(p) {
		if e, there := t.entries[dir]; there && e.Kind != content.FileDir {
			return errs.New(errs.Conflict, "%s is no directory: nothing can lie in it; delete it first, or choose another path", dir)
		}
	}
	return nil
}

// Mkdir creates a directory and its parents. It returns AlreadyExists when something is at
// the path.
func (t *Tree) Mkdir(p string) error {
	p, err := named(p)
	if err != nil {
		return err
	}
	if _, there := t.entries[p]; there {
		return exists(p)
	}
	if err := t.reachable(p); err != nil {
		return err
	}
	t.add(content.ManifestEntry{Path: p, Kind: content.FileDir, Mode: dirMode})
	return nil
}

// Delete removes a file, a link, or a directory with its content. It returns NotFound when
// nothing is at the path.
func (t *Tree) Delete(p string) error {
	p, err := named(p)
	if err != nil {
		return err
	}
	if _, there := t.entries[p]; !there {
		return missing(p)
	}
	for _, below := range slices.Backward(t.Below(p)) { // the content of a directory before the directory
		t.remove(below)
	}
	return nil
}

// Rename moves a file, or a directory with its content. Relative links are not adjusted. It
// returns NotFound when nothing is at from, AlreadyExists when something is at to, and
// Conflict when to is inside from.
func (t *Tree) Rename(from, to string) error {
	from, err := named(from)
	if err != nil {
		return withField(err, "from")
	}
	if to, err = named(to); err != nil {
		return withField(err, "to")
	}
	if _, there := t.entries[from]; !there {
		return missing(from)
	}
	if _, there := t.entries[to]; there {
		return exists(to)
	}
	if within(to, from) {
		return errs.New(errs.Conflict, "%s cannot be moved into itself", from)
	}
	if err := t.reachable(to); err != nil {
		return err
	}
	var moved []content.ManifestEntry
	for _, p := range t.Below(from) {
		e := t.entries[p]
		if e.Path = to + p[len(from):]; unfit(e.Path) != "" {
			return &errs.Error{Kind: errs.Invalid, Field: "to", Message: e.Path + " " + unfit(e.Path)}
		}
		moved = append(moved, e)
	}
	if err := t.Delete(from); err != nil {
		return err
	}
	for _, e := range moved {
		t.add(e)
	}
	return nil
}

func exists(p string) error {
	return errs.New(errs.AlreadyExists, "%s exists already: delete it first, or choose another path", p)
}

// withField returns an error with the field that the caller used.
func withField(err error, field string) error {
	return &errs.Error{Kind: errs.KindOf(err), Field: field, Message: errs.MessageOf(err), Err: err}
}

// Overlay adds the entries of an archive to a directory and deletes nothing. An entry may
// replace one of the same kind; files may also replace links, and links files. The paths of
// the entries must be clean.
func (t *Tree) Overlay(dir string, entries []content.ManifestEntry) error {
	dir, err := Clean(dir)
	if err != nil {
		return err
	}
	next := Of(t.Manifest())
	for _, e := range entries {
		e.Path = path.Join(dir, e.Path)
		if why := unfit(e.Path); why != "" {
			return errs.New(errs.Invalid, "%s %s", e.Path, why)
		}
		old, there := next.entries[e.Path]
		if there && (old.Kind == content.FileDir) != (e.Kind == content.FileDir) {
			return errs.New(errs.Conflict, "%s is a directory here or there, and a file in the other: delete it first", e.Path)
		}
		if err := next.reachable(e.Path); err != nil {
			return err
		}
		if !there || e.Kind != content.FileDir {
			next.add(e)
		}
	}
	*t = *next
	return nil
}
