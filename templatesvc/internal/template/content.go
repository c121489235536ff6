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

// Blob finds what a hash names, wherever it is stored, to be read until ctx ends.
// NotFound when nobody has it, Malformed when it is no hash.
func (s *Service) Blob(ctx context.Context, sum string) (*Blob, error) {
	b, err := s.Held(ctx, sum)
	if !errs.Is(err, errs.NotFound) {
		return b, err
	}
	c, err := s.cfg.Vault.Recipe(ctx, sum)
	if err == nil {
		joined, err := s.cfg.Vault.Join(ctx, c)
		return &Blob{Joined: joined, Sum: sum, Size: c.Size}, err
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	stored, err := s.cfg.Vault.Lookup(ctx, sum)
	if err != nil {
		return nil, err
	}
	return &Blob{Stored: stored, Sum: sum, Size: stored.Size}, nil
}

// Held finds what a hash names and is stored here: what other replicas ask for. Errors
// as of Blob.
func (s *Service) Held(ctx context.Context, sum string) (*Blob, error) {
	stored, err := s.cfg.Vault.Here(ctx, sum)
	if err == nil {
		return &Blob{Stored: stored, Sum: sum, Size: stored.Size}, nil
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	c, err := s.cfg.Vault.RecipeHere(ctx, sum)
	if err != nil {
		return nil, err
	}
	joined, err := s.cfg.Vault.JoinHere(ctx, c)
	return &Blob{Joined: joined, Sum: sum, Size: c.Size}, err
}
