package template

import (
	"context"
	"errors"
	"io"
	"time"

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

// Row is blobs that are sent one after the other, as they lie on the disk. Close it.
type Row []*blob.Stored

// Close ends the reading.
func (r Row) Close() error {
	var all error
	for _, b := range r {
		all = errors.Join(all, b.Close())
	}
	return all
}

// gathering bounds how long whoever asks for a row waits for its beginning.
const gathering = time.Second

// Row finds several blobs: the first wherever it is stored, and those after it up to one
// that is not at hand, which is asked for again. Errors are those of the first, as of Blob.
func (s *Service) Row(ctx context.Context, sums []string) (Row, error) {
	if len(sums) == 0 {
		return nil, errs.New(errs.Invalid, "no blob is asked for")
	}
	began := time.Now()
	first, err := s.cfg.Vault.Lookup(ctx, sums[0])
	if err != nil {
		return nil, err
	}
	row := Row{first}
	for _, sum := range sums[1:] {
		if time.Since(began) > gathering {
			break
		}
		b, err := s.cfg.Vault.Here(ctx, sum)
		if err != nil {
			break
		}
		row = append(row, b)
	}
	return row, nil
}
