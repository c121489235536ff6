package archive

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Collect reads an archive into a manifest: put stores a file's bytes and says
// what they are known by; it is told how many there may be. The manifest's entries
// are in order of path, and directories stand in it only when nothing is in them.
// Errors as of Read, and those of put.
func Collect(ctx context.Context, r io.Reader, o Options, put func(r io.Reader, limit int64) (fleet.Content, error)) (fleet.Manifest, error) {
	entries := map[string]fleet.ManifestEntry{}
	parents := map[string]bool{}
	err := Read(ctx, r, o, func(e Entry, content io.Reader) error {
		m := fleet.ManifestEntry{Path: e.Path, Kind: e.Kind, Mode: e.Mode, Target: e.Target}
		for i, c := range e.Path {
			if c == '/' {
				parents[e.Path[:i]] = true
			}
		}
		switch {
		case e.Kind != fleet.FileRegular:
		case e.Same != "":
			first := entries[e.Same]
			m.SHA256, m.Size, m.Chunks = first.SHA256, first.Size, first.Chunks
		default:
			c, err := put(content, o.Limits.EntryBytes)
			if err != nil {
				return err
			}
			m.SHA256, m.Size, m.Chunks = c.SHA256, c.Size, c.Chunks
		}
		entries[e.Path] = m
		return nil
	})
	if err != nil {
		return fleet.Manifest{}, err
	}
	var m fleet.Manifest
	for p, e := range entries {
		if e.Kind != fleet.FileDir || !parents[p] {
			m.Entries = append(m.Entries, e)
		}
	}
	slices.SortFunc(m.Entries, func(a, b fleet.ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	return m, nil
}
