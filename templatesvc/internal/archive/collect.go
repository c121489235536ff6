package archive

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Collect reads an archive into a manifest. put stores a file of at most limit bytes and
// returns its content. The entries are sorted by path; directories are included only if
// they are empty. Collect returns the errors of Read and put.
func Collect(ctx context.Context, r io.Reader, o Options, put func(r io.Reader, limit int64) (content.Content, error)) (content.Manifest, error) {
	entries := map[string]content.ManifestEntry{}
	parents := map[string]bool{}
	err := Read(ctx, r, o, func(e Entry, body io.Reader) error {
		m := content.ManifestEntry{Path: e.Path, Kind: e.Kind, Mode: e.Mode, Target: e.Target}
		for i, c := range e.Path {
			if c == '/' {
				parents[e.Path[:i]] = true
			}
		}
		switch {
		case e.Kind != content.FileRegular:
		case e.Same != "":
			first := entries[e.Same]
			m.SHA256, m.Size, m.Chunks = first.SHA256, first.Size, first.Chunks
		default:
			c, err := put(body, o.Limits.EntryBytes)
			if err != nil {
				return err
			}
			m.SHA256, m.Size, m.Chunks = c.SHA256, c.Size, c.Chunks
		}
		entries[e.Path] = m
		return nil
	})
	if err != nil {
		return content.Manifest{}, err
	}
	var m content.Manifest
	for p, e := range entries {
		if e.Kind != content.FileDir || !parents[p] {
			m.Entries = append(m.Entries, e)
		}
	}
	slices.SortFunc(m.Entries, func(a, b content.ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	return m, nil
}
