package blob

import (
	"errors"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Join reads content, one blob or many, one after the other. NotFound when a part of
// it is not stored; a part found corrupt later ends the reading.
func (s *Store) Join(c fleet.Content) (io.ReadCloser, error) {
	for _, b := range c.Blobs() {
		if !s.Has(b.SHA256, b.Size) {
			if c.Chunks == nil {
				return s.Open(c.SHA256) // stored by its chunks, perhaps
			}
			return nil, errs.New(errs.NotFound, "blob %s is not stored here", b.SHA256)
		}
	}
	return &joined{store: s, left: c.Blobs()}, nil
}

type joined struct {
	store *Store
	left  []fleet.Chunk
	open  io.ReadCloser // nil between blobs
}

// Read reads on.
func (j *joined) Read(p []byte) (int, error) {
	for {
		if j.open == nil {
			if len(j.left) == 0 {
				return 0, io.EOF
			}
			b, err := j.store.Lookup(j.left[0].SHA256)
			if err != nil {
				return 0, err
			}
			if j.open, err = b.content(); err != nil {
				return 0, err
			}
			j.left = j.left[1:]
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
