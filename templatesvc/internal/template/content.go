package template

import (
	"context"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
)

// Blob is a blob to be served, or a large file by the hash of the whole. Close it.
type Blob struct {
	// Stored is the verified blob as it lies on the disk; nil for a large file, which
	// Joined reads then.
	Stored *blob.Stored
	Joined io.ReadCloser
	Sum    string
	Size   int64 // of the content, in bytes
}

// Close ends the reading.
func (b *Blob) Close() error {
	if b.Stored != nil {
		return b.Stored.Close()
	}
	return b.Joined.Close()
}

// Blob finds what a hash names. NotFound when it is not stored here, Malformed when it
// is no hash.
func (s *Service) Blob(ctx context.Context, sum string) (*Blob, error) {
	stored, err := s.cfg.Vault.Lookup(ctx, sum)
	if err == nil {
		return &Blob{Stored: stored, Sum: sum, Size: stored.Size}, nil
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	c, recipe := s.cfg.Vault.Recipe(ctx, sum)
	if recipe != nil {
		return nil, err
	}
	joined, err := s.cfg.Vault.Join(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Blob{Joined: joined, Sum: sum, Size: c.Size}, nil
}
