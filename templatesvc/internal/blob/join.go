package blob

import (
	"context"
	"errors"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Join reads content, one blob or many, one after the other, until ctx ends. NotFound
// when a part of it is not stored; a part found corrupt later ends the reading.
func (s *Store) Join(ctx context.Context, c fleet.Content) (io.ReadCloser, error) {
	for _, b := range c.Blobs() {
		there, err := s.Has(ctx, b.SHA256, b.Size)
		if err != nil {
			return nil, err
		}
		if !there {
			if c.Chunks == nil {
				return s.Open(ctx, c.SHA256) // stored by its chunks, perhaps
			}
			return nil, errs.New(errs.NotFound, "blob %s is not stored here", b.SHA256)
		}
	}
	left := c.Blobs()
	return &joined{next: func() (io.ReadCloser, error) {
		if len(left) == 0 {
			return nil, io.EOF
		}
		r, err := s.Open(ctx, left[0].SHA256)
		left = left[1:]
		return r, err
	}}, nil
}

type joined struct {
	next func() (io.ReadCloser, error) // io.EOF after the last
	open io.ReadCloser                 // nil between blobs
}

// Read reads on.
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

// Close ends the reading.
func (j *joined) Close() error {
	if j.open == nil {
		return nil
	}
	err := j.open.Close()
	j.open = nil
	return err
}
