package template

import (
	"errors"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Open opens a file's content, joined from its chunks. NotFound when a part of it is
// not stored here. The caller closes it.
func (s *Service) Open(c fleet.Content) (io.ReadCloser, error) {
	for _, b := range c.Blobs() {
		if !s.cfg.Blobs.Has(b.SHA256, b.Size) {
			return nil, errs.New(errs.NotFound, "blob %s is not stored here", b.SHA256)
		}
	}
	return &joined{service: s, left: c.Blobs()}, nil
}

// joined reads blobs one after the other.
type joined struct {
	service *Service
	left    []fleet.Chunk
	open    io.ReadCloser // nil between blobs
}

// Read reads on.
func (j *joined) Read(p []byte) (int, error) {
	for {
		if j.open == nil {
			if len(j.left) == 0 {
				return 0, io.EOF
			}
			f, err := j.service.cfg.Blobs.Open(j.left[0].SHA256)
			if err != nil {
				return 0, err
			}
			j.open, j.left = f, j.left[1:]
		}
		n, err := j.open.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := j.Close(); err != nil {
			return 0, err
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
