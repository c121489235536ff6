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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/edit"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Limits of a search in bytes: larger files are skipped, and one search reads no more than
// maxSearch.
const (
	maxText   = 16 << 20
	maxSearch = 256 << 20
	// MaxMatches is the maximum number of matches per search.
	MaxMatches = 200
	// maxUses is the maximum number of reported uses per placeholder, and maxKeys that of
	// placeholders.
	maxUses = 100
	maxKeys = 2000
)

// Reader reads versions. It is safe for concurrent use.
type Reader struct{ templates *versions.Service }

// NewReader returns a Reader of a service's versions.
func NewReader(s *versions.Service) *Reader { return &Reader{s} }

// FinalError is an error that every replica would return.
type FinalError struct{ Err error }

// Error implements error.
func (e FinalError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e FinalError) Unwrap() error { return e.Err }

// final marks an error about the content of a version as final.
func final(err error) error {
	if err == nil {
		return nil
	}
	return FinalError{err}
}

// tree returns the tree of a version. It returns NotFound when no source has the version.
func (r *Reader) tree(ctx context.Context, digest string) (*edit.Tree, error) {
	m, err := r.templates.Manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	return edit.Of(m), nil
}

// List returns the entries of a directory of a version. With deep, it returns everything
// below the directory, and directories only if they are empty. It returns the errors of
// edit.Tree.List.
func (r *Reader) List(ctx context.Context, digest, dir string, deep bool) ([]content.ManifestEntry, error) {
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

// below returns everything below a directory, and the directory's path. It returns the
// errors of List.
func below(t *edit.Tree, dir string) (at string, entries []content.ManifestEntry, err error) {
	if at, err = t.Dir(dir); err != nil {
		return at, nil, final(err)
	}
	paths := t.Below(at)
	all := t.Manifest().Entries
	return at, slices.DeleteFunc(all, func(e content.ManifestEntry) bool {
		_, in := slices.BinarySearch(paths, e.Path)
		return !in
	}), nil
}

// Open opens a file of a version. It returns the errors of edit.Tree.File. The caller
// closes the file.
func (r *Reader) Open(ctx context.Context, digest, path string) (content.ManifestEntry, io.ReadCloser, error) {
	t, err := r.tree(ctx, digest)
	if err != nil {
		return content.ManifestEntry{}, nil, err
	}
	e, err := t.File(path)
	if err != nil {
		return e, nil, final(err)
	}
	content, err := r.templates.Open(ctx, e.Content())
	return e, content, of(e, err)
}

// of adds to an error the file whose content could not be read.
func of(e content.ManifestEntry, err error) error {
	if err == nil {
		return nil
	}
	return &errs.Error{Kind: errs.KindOf(err), Message: fmt.Sprintf("%s (%s): %s", e.Path, e.SHA256, errs.MessageOf(err)), Err: err}
}

// errEnough stops texts early.
var errEnough = errors.New("enough")

// texts calls look with each text file of a version until look fails. partial is true when
// the version has more text than maxSearch.
func (r *Reader) texts(ctx context.Context, t *edit.Tree, look func(path, content string) error) (partial bool, err error) {
	left := int64(maxSearch)
	for _, e := range t.Manifest().Entries {
		if e.Kind != content.FileRegular || e.Size > maxText {
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

func (r *Reader) readAll(ctx context.Context, e content.ManifestEntry) ([]byte, error) {
	f, err := r.templates.Open(ctx, e.Content())
	if err != nil {
		return nil, of(e, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxText))
	return content, of(e, errs.WrapAs(errs.Unavailable, "editor.read", err))
}

// Search finds a text in a version's files and file names. The matches are sorted by path.
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
		out.Matches = append(out.Matches, edit.Search(path, content, text, most-len(out.Matches))...)
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

// Placeholders returns the placeholders that a version's files use, sorted.
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
