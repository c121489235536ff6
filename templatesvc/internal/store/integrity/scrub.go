// Package integrity slowly reads all files of a store, so that a failing disk is noticed
// while other replicas still have its content.
//
// Invariants: A pass takes at least the configured time for the whole store. Damaged and
// unreadable files are set aside and fetched from elsewhere, and the pass continues. The
// package removes nothing.
package integrity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// Scrubber verifies the files of one store. Run it only once.
type Scrubber struct {
	Store *blob.Store
	// Every is the duration of a pass over the whole store.
	Every time.Duration
	// Seen is called with the result for each file.
	Seen func(blob.Health)
	Log  *slog.Logger
}

// idle is the longest pause between two files, even in a small store.
const idle = time.Hour

// patience is the number of successive failed reads that ends a pass.
const patience = 10

// Run runs passes until ctx ends. Each pass starts at a random file. Otherwise a process
// that restarts often would read only the first files.
func (s *Scrubber) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("the disk of the templates' content cannot be read; templatesvc retries later", "error", err)
			pause.For(ctx, min(idle, s.Every))
		}
	}
	return ctx.Err()
}

// Pass reads the whole store once. It logs files that it cannot read and continues with the
// next. It returns an error after several successive failures.
func (s *Scrubber) Pass(ctx context.Context) error {
	files := 0
	for range s.Store.Files(ctx) {
		files++
	}
	slot := min(idle, s.Every/time.Duration(files+1))
	var anywhere [32]byte
	_, _ = rand.Read(anywhere[:]) // never fails
	from := hex.EncodeToString(anywhere[:])
	failed := 0
	for _, after := range []bool{true, false} {
		for f, err := range s.Store.Files(ctx) {
			if err == nil {
				if (f.Sum >= from) != after {
					continue
				}
				err = s.look(ctx, f, slot)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				failed = 0
				continue
			}
			if failed++; failed == patience {
				return err
			}
			s.Log.Warn("a file of this disk was not verified; the next pass tries again", "sha256", f.Sum, "error", err)
		}
	}
	pause.For(ctx, slot)
	return ctx.Err()
}

// look verifies one file and waits until the file's time slot ends. It returns an error
// only if the file could not be read for a reason other than a damaged disk.
func (s *Scrubber) look(ctx context.Context, f blob.File, slot time.Duration) error {
	began := time.Now()
	health, err := s.Store.Examine(ctx, f)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.Seen(health)
	switch health {
	case blob.Healed:
		s.Log.Warn("content was damaged on this disk and was fetched again: check the disk", "sha256", f.Sum)
	case blob.Corrupt:
		s.Log.Warn("content was damaged on this disk and no other replica has it: publish it again", "sha256", f.Sum, "error", err)
	case blob.Unread:
	case blob.Sound:
		err = nil
	}
	pause.For(ctx, slot-time.Since(began))
	if health != blob.Unread {
		return ctx.Err()
	}
	return err
}
