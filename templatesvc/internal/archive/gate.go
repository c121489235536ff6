package archive

import (
	"io"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// gate checks each entry of every format before the caller sees it.
type gate struct {
	limits Limits
	in     func() int64 // returns the packed bytes read so far
	each   func(Entry, io.Reader) error
	tree   *tree

	entries int
	out     int64 // content bytes passed on so far
	err     error // set when a limit is exceeded
}

// pass checks an entry and passes it to the caller. name and e.Size are what the archive
// claims.
func (g *gate) pass(name string, e Entry, r io.Reader) error {
	if g.entries++; g.entries > g.limits.Entries {
		return errs.New(errs.TooLarge, "the archive has more than %d entries: split it", g.limits.Entries)
	}
	p, err := clean(name)
	if err != nil {
		return err
	}
	if p == "." && e.Kind == content.FileDir {
		return nil // the root directory, which tar includes
	}
	if e.Path = p; p == "." {
		return errs.New(errs.Malformed, "the entry %s has no name: pack it again", quoted(name))
	}
	e.Mode &= 0o777
	if err := g.tree.add(&e); err != nil {
		return err
	}
	if e.Kind != content.FileRegular || e.Same != "" {
		g.out += e.Size // a hard link counts with the size of its target
		if err := g.total(); err != nil {
			return err
		}
		return callers(g.each(e, strings.NewReader("")))
	}
	return g.file(e, r)
}

// file passes on a regular file. It then reads what the caller did not, so that the decoder
// verifies the checksum.
func (g *gate) file(e Entry, r io.Reader) error {
	if e.Size > g.limits.EntryBytes {
		return g.tooLarge(e.Path)
	}
	content := &bounded{g: g, r: r, path: e.Path}
	err := callers(g.each(e, content))
	if g.err == nil && err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	switch {
	case g.err != nil:
		return g.err
	case content.err != nil:
		return content.err
	}
	return err
}

// callers marks an error of the caller's function.
func callers(err error) error {
	if err == nil {
		return nil
	}
	return stopped{err}
}

// finish makes the checks that need all entries.
func (g *gate) finish() error { return g.tree.checkLinks() }

func (g *gate) tooLarge(path string) error {
	return errs.New(errs.TooLarge, "%s has more than %d MiB, the most an entry may have: leave it out", quoted(path), g.limits.EntryBytes>>20)
}

// total checks the output so far against the limits.
func (g *gate) total() error {
	switch {
	case g.err != nil:
	case g.out > g.limits.TotalBytes:
		g.err = errs.New(errs.TooLarge, "the archive holds more than %d MiB: split it", g.limits.TotalBytes>>20)
	case g.out > ratioFrom && g.out/g.limits.Ratio > g.in():
		g.err = errs.New(errs.TooLarge, "the archive unpacks to more than %d times its size, as bombs do: leave out what is only filling", g.limits.Ratio)
	}
	return g.err
}

// bounded reads an entry's content until a limit is exceeded.
type bounded struct {
	g    *gate
	r    io.Reader
	path string
	n    int64
	err  error // from the archive's decoder
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.g.err != nil {
		return 0, b.g.err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	b.g.out += int64(n)
	if b.n > b.g.limits.EntryBytes {
		b.g.err = b.g.tooLarge(b.path)
	}
	if limit := b.g.total(); limit != nil {
		return 0, limit
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}
