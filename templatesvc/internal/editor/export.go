package editor

import (
	"context"
	"io"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

// Archive packs what lies in a directory of a version; "" is all of it. It is checked
// before it returns; the content is read when the function it returns is called with a
// place to write to. Errors as of List, and Invalid for an unknown format.
func (r *Reader) Archive(ctx context.Context, digest, dir string, f archive.Format) (func(io.Writer) error, error) {
	t, err := r.tree(ctx, digest)
	if err != nil {
		return nil, err
	}
	at, entries, err := below(t, dir)
	if err != nil {
		return nil, err
	}
	if _, err := archive.NewWriter(io.Discard, f); err != nil {
		return nil, final(err)
	}
	return func(w io.Writer) error { return r.pack(ctx, w, f, at, entries) }, nil
}

func (r *Reader) pack(ctx context.Context, w io.Writer, f archive.Format, dir string, entries []fleet.ManifestEntry) error {
	out, err := archive.NewWriter(w, f)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return errs.Wrap("editor.pack", err)
		}
		if err := r.packOne(ctx, out, strings.TrimPrefix(strings.TrimPrefix(e.Path, dir), "/"), e); err != nil {
			return err
		}
	}
	return out.Close()
}

func (r *Reader) packOne(ctx context.Context, out *archive.Writer, name string, e fleet.ManifestEntry) error {
	if name == "" { // the directory itself, which is empty
		return nil
	}
	entry := archive.Entry{Path: name, Kind: e.Kind, Mode: e.Mode, Size: e.Size, Target: e.Target}
	if e.Kind != fleet.FileRegular {
		return out.Add(entry, nil)
	}
	content, err := r.templates.Open(ctx, e.Content())
	if err != nil {
		return of(e, err)
	}
	defer content.Close()
	return of(e, out.Add(entry, content))
}
