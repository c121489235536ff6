package editor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/edit"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// Bounds of a search, in bytes: larger files are no text anybody looks for, and one
// search reads no more than this in all.
const (
	maxText   = 16 << 20
	maxSearch = 256 << 20
	// MaxMatches is the number of places a search may tell.
	MaxMatches = 200
	// maxUses is the number of places told of one placeholder, maxKeys of placeholders.
	maxUses = 100
	maxKeys = 2000
)

// Reader reads in versions. It is safe for concurrent use.
type Reader struct{ templates *template.Service }

// NewReader reads what a service keeps.
func NewReader(s *template.Service) *Reader { return &Reader{s} }

// FinalError is an error that is the same whoever is asked.
type FinalError struct{ Err error }

// Error is the error's own text.
func (e FinalError) Error() string { return e.Err.Error() }

// Unwrap gives the error itself.
func (e FinalError) Unwrap() error { return e.Err }

// final marks an error about what a version holds.
func final(err error) error {
	if err == nil {
		return nil
	}
	return FinalError{err}
}

// tree is a version's tree. NotFound when this replica does not have it.
func (r *Reader) tree(ctx context.Context, digest string) (*edit.Tree, error) {
	m, err := r.templates.Manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	return edit.Of(m), nil
}

// List is what lies in a directory of a version; deep, everything below it, directories
// only where nothing lies in them. Errors as of edit.Tree.List.
func (r *Reader) List(ctx context.Context, digest, dir string, deep bool) ([]fleet.ManifestEntry, error) {
	t, err := r.tree(ctx, digest)
	if err != nil {
		return nil, err
	}
	if !deep {
		direct, err := t.List(dir)
		return direct, final(err)
	}
	_, all, err := below(t, dir)
	return all, err
}

// below is everything below a directory, and where that lies. Errors as of List.
func below(t *edit.Tree, dir string) (at string, entries []fleet.ManifestEntry, err error) {
	if at, err = t.Dir(dir); err != nil {
		return at, nil, final(err)
	}
	paths := t.Below(at)
	all := t.Manifest().Entries
	return at, slices.DeleteFunc(all, func(e fleet.ManifestEntry) bool {
		_, in := slices.BinarySearch(paths, e.Path)
		return !in
	}), nil
}

// Open opens a file of a version. Errors as of edit.Tree.File. The caller closes it.
func (r *Reader) Open(ctx context.Context, digest, path string) (fleet.ManifestEntry, io.ReadCloser, error) {
	t, err := r.tree(ctx, digest)
	if err != nil {
		return fleet.ManifestEntry{}, nil, err
	}
	e, err := t.File(path)
	if err != nil {
		return e, nil, final(err)
	}
	content, err := r.templates.Open(ctx, e.Content())
	return e, content, of(e, err)
}

// of names the file whose content could not be read.
func of(e fleet.ManifestEntry, err error) error {
	if err == nil {
		return nil
	}
	return &errs.Error{Kind: errs.KindOf(err), Message: fmt.Sprintf("%s (%s): %s", e.Path, e.SHA256, errs.MessageOf(err)), Err: err}
}

// errEnough ends a walk over a version's text.
var errEnough = errors.New("enough")

// texts calls look for each file of text in a version, with its content, until that
// fails. partial is true when there was more than may be read at once.
func (r *Reader) texts(ctx context.Context, t *edit.Tree, look func(path, content string) error) (partial bool, err error) {
	left := int64(maxSearch)
	for _, e := range t.Manifest().Entries {
		if e.Kind != fleet.FileRegular || e.Size > maxText {
			continue
		}
		if left -= e.Size; left < 0 {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return false, errs.Wrap("editor.texts", err)
		}
		content, err := r.readAll(ctx, e)
		if err != nil {
			return false, err
		}
		if !edit.Text(content) {
			continue
		}
		if err := look(e.Path, string(content)); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (r *Reader) readAll(ctx context.Context, e fleet.ManifestEntry) ([]byte, error) {
	f, err := r.templates.Open(ctx, e.Content())
	if err != nil {
		return nil, of(e, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxText))
	return content, of(e, errs.As(errs.Unavailable, "editor.read", err))
}

// Search finds a text in a version's files and in their names, in order of path.
func (r *Reader) Search(ctx context.Context, digest, text string, most int) (client.Found, error) {
	out := client.Found{Matches: []client.Match{}}
	if text == "" {
		return out, final(&errs.Error{Kind: errs.Malformed, Field: "q", Message: "is required: the text to look for"})
	}
	most = min(max(most, 1), MaxMatches)
	t, err := r.tree(ctx, digest)
	if err != nil {
		return out, err
	}
	for _, e := range t.Manifest().Entries {
		if edit.Named(e.Path, text) && len(out.Matches) < most {
			out.Matches = append(out.Matches, client.Match{Path: e.Path, Preview: e.Path})
		}
	}
	out.Partial, err = r.texts(ctx, t, func(path, content string) error {
		for _, m := range edit.Search(path, content, text, most-len(out.Matches)) {
			out.Matches = append(out.Matches, client.Match(m))
		}
		if len(out.Matches) >= most {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	out.More = len(out.Matches) >= most
	slices.SortStableFunc(out.Matches, func(a, b client.Match) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// Placeholders are the keys that a version's files use, in order.
func (r *Reader) Placeholders(ctx context.Context, digest string) (client.Placeholders, error) {
	out := client.Placeholders{Keys: []client.Placeholder{}}
	t, err := r.tree(ctx, digest)
	if err != nil {
		return out, err
	}
	uses := map[string][]client.Use{}
	out.Partial, err = r.texts(ctx, t, func(path, content string) error {
		for _, u := range edit.Placeholders(content) {
			if at, known := uses[u.Key]; len(at) < maxUses && (known || len(uses) < maxKeys) {
				uses[u.Key] = append(at, client.Use{Path: path, Line: u.Line})
			}
		}
		return nil
	})
	for _, key := range slices.Sorted(maps.Keys(uses)) {
		out.Keys = append(out.Keys, client.Placeholder{Key: key, Uses: uses[key]})
	}
	return out, err
}
