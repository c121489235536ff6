package editor

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

// Archive packs a directory of a version; "" packs the whole version. If most is not nil, a
// whole version includes its variable definitions, as far as a user with that visibility
// may see them. Archive checks the request and returns a function that writes the archive.
// It returns the errors of List, and Invalid for an unknown format.
func (r *Reader) Archive(ctx context.Context, digest, dir string, f archive.Format, most *content.Visibility) (func(io.Writer) error, error) {
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
	var definitions []byte
	if most != nil && at == "" {
		if definitions, err = packedDefinitions(t.Manifest().Variables, *most); err != nil {
			return nil, err
		}
	}
	return func(w io.Writer) error { return r.pack(ctx, w, f, at, entries, definitions) }, nil
}

func (r *Reader) pack(ctx context.Context, w io.Writer, f archive.Format, dir string, entries []content.ManifestEntry, definitions []byte) error {
	out, err := archive.NewWriter(w, f)
	if err != nil {
		return err
	}
	if definitions != nil {
		e := archive.Entry{Path: definitionsFile, Kind: content.FileRegular, Mode: 0o644, Size: int64(len(definitions))}
		if err := out.Add(e, bytes.NewReader(definitions)); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return errs.Wrap("editor.pack", err)
		}
		if definitions != nil && e.Path == definitionsFile {
			continue // the packed definitions use its name
		}
		if err := r.packOne(ctx, out, strings.TrimPrefix(strings.TrimPrefix(e.Path, dir), "/"), e); err != nil {
			return err
		}
	}
	return out.Close()
}

func (r *Reader) packOne(ctx context.Context, out *archive.Writer, name string, e content.ManifestEntry) error {
	if name == "" { // the directory itself, which is empty
		return nil
	}
	entry := archive.Entry{Path: name, Kind: e.Kind, Mode: e.Mode, Size: e.Size, Target: e.Target}
	if e.Kind != content.FileRegular {
		return out.Add(entry, nil)
	}
	content, err := r.templates.Open(ctx, e.Content())
	if err != nil {
		return of(e, err)
	}
	defer content.Close()
	return of(e, out.Add(entry, content))
}
