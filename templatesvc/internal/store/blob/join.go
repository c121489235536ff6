package blob

import (
	"context"
	"errors"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Join reads content, one blob after the other, until ctx ends. It fetches each missing
// blob when it gets there. It returns NotFound when no source has the first blob; for a
// later one, Read does.
func (s *Store) Join(ctx context.Context, c content.Content) (io.ReadCloser, error) {
	if c.Chunks == nil {
		return s.Open(ctx, c.SHA256) // possibly stored as chunks
	}
	return join(c, func(sum string) (*Stored, error) { return s.Lookup(ctx, sum) })
}

// JoinHere reads content from this store only. It returns NotFound when a blob is missing.
func (s *Store) JoinHere(ctx context.Context, c content.Content) (io.ReadCloser, error) {
	for _, b := range c.Blobs() {
		if there, err := s.Has(ctx, b.SHA256, b.Size); err != nil {
			return nil, err
		} else if !there {
			return nil, errs.New(errs.NotFound, "blob %s is not stored here", b.SHA256)
		}
	}
	return join(c, func(sum string) (*Stored, error) { return s.Here(ctx, sum) })
}

// OpenHere opens the content of a blob from this store only. It returns NotFound when it is
// missing.
func (s *Store) OpenHere(ctx context.Context, sum string) (io.ReadCloser, error) {
	b, err := s.Here(ctx, sum)
	if err != nil {
		return nil, err
	}
	return b.content()
}

func join(c content.Content, open func(sum string) (*Stored, error)) (io.ReadCloser, error) {
	left := c.Blobs()
	j := &joined{next: func() (io.ReadCloser, error) {
		if len(left) == 0 {
			return nil, io.EOF
		}
		b, err := open(left[0].SHA256)
		left = left[1:]
		if err != nil {
			return nil, err
		}
		return b.content()
	}}
	var err error
	if j.open, err = j.next(); err != nil {
		return nil, err
	}
	return j, nil
}

type joined struct {
	next func() (io.ReadCloser, error) // io.EOF after the last
	open io.ReadCloser                 // nil between blobs
}

// Read implements io.Reader.
func (j *joined) Read(p []byte) (int, error) {
	for {
		if j.open == nil {
			var err error
			if j.open, err = j.next(); err != nil {
				return 0, err
			}
		}
		n, err := j.open.Read(p)
		if errors.Is(err, io.EOF) {
			err = j.Close()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Close implements io.Closer.
func (j *joined) Close() error {
	if j.open == nil {
		return nil
	}
	err := j.open.Close()
	j.open = nil
	return err
}
