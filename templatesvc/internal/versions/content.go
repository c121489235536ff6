package versions

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// Blob is a blob to serve, or a large file by the hash of the whole. The caller closes it.
type Blob struct {
	// Stored is the verified blob as it is stored. It is nil for a large file, whose
	// content Joined yields.
	Stored *blob.Stored
	Joined io.ReadCloser
	Sum    string
	Size   int64 // of the content, in bytes
}

// Close implements io.Closer.
func (b *Blob) Close() error {
	if b.Stored != nil {
		return b.Stored.Close()
	}
	return b.Joined.Close()
}

// Blob opens a blob or a large file, from here or elsewhere, until ctx ends. It returns
// NotFound when no source has it and Malformed when sum is no SHA-256.
func (s *Service) Blob(ctx context.Context, sum string) (*Blob, error) {
	b, err := s.Held(ctx, sum)
	if !errs.Is(err, errs.NotFound) {
		return b, err
	}
	c, err := s.cfg.Blobs.Recipe(ctx, sum)
	if err == nil {
		joined, err := s.cfg.Blobs.Join(ctx, c)
		return &Blob{Joined: joined, Sum: sum, Size: c.Size}, err
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	stored, err := s.cfg.Blobs.Lookup(ctx, sum)
	if err != nil {
		return nil, err
	}
	return &Blob{Stored: stored, Sum: sum, Size: stored.Size}, nil
}

// Held is like Blob, but looks only in this store. It serves requests of other replicas.
func (s *Service) Held(ctx context.Context, sum string) (*Blob, error) {
	stored, err := s.cfg.Blobs.Here(ctx, sum)
	if err == nil {
		return &Blob{Stored: stored, Sum: sum, Size: stored.Size}, nil
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	c, err := s.cfg.Blobs.RecipeHere(ctx, sum)
	if err != nil {
		return nil, err
	}
	joined, err := s.cfg.Blobs.JoinHere(ctx, c)
	return &Blob{Joined: joined, Sum: sum, Size: c.Size}, err
}

// Row is a series of blobs that are sent one after the other, as they are stored. The
// caller closes it.
type Row []*blob.Stored

// Close implements io.Closer.
func (r Row) Close() error {
	var all error
	for _, b := range r {
		all = errors.Join(all, b.Close())
	}
	return all
}

// gathering is how long Row collects blobs before it returns.
const gathering = time.Second

// Row opens several blobs. It fetches the first one from elsewhere if necessary, and adds
// the following ones up to the first that is not stored here; the client requests the rest
// again. It returns the errors of Blob for the first blob.
func (s *Service) Row(ctx context.Context, sums []string) (Row, error) {
	if len(sums) == 0 {
		return nil, errs.New(errs.Invalid, "the request names no blob")
	}
	began := time.Now()
	first, err := s.cfg.Blobs.Lookup(ctx, sums[0])
	if err != nil {
		return nil, err
	}
	row := Row{first}
	for _, sum := range sums[1:] {
		if time.Since(began) > gathering {
			break
		}
		b, err := s.cfg.Blobs.Here(ctx, sum)
		if err != nil {
			break
		}
		row = append(row, b)
	}
	return row, nil
}
