// Package scrub reads what lies on a replica's disk again, slowly, so that a disk that
// fails is noticed while another replica still has what it lost.
//
// Invariants: it reads no faster than the whole store in the time it is given; what does
// not have its hash, or cannot be read, is put aside and fetched from elsewhere, and the
// pass goes on; it removes nothing.
package scrub

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
)

// Scrubber scrubs one store. Run it once.
type Scrubber struct {
	Store *blob.Store
	// Every is how long it takes to read the whole store.
	Every time.Duration
	// Seen hears of each file that was read.
	Seen func(blob.Health)
	Log  *slog.Logger
}

// idle is the longest pause between two looks, also in a store that holds next to nothing.
const idle = time.Hour

// patience is how many files, one after the other, may not be read before a pass ends.
const patience = 10

// Run scrubs until ctx ends. It begins anywhere, since a program that is restarted often
// would read only what comes first.
func (s *Scrubber) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("the disk of templates' content cannot be read through; trying again later", "error", err)
			pause.For(ctx, min(idle, s.Every))
		}
	}
	return ctx.Err()
}

// Pass reads the whole store once. What cannot be read is told and left for the next
// pass; only when nothing can be read any more the pass ends with the error.
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
			s.Log.Warn("what lies on this disk was not read again, and is in the next pass", "sha256", f.Sum, "error", err)
		}
	}
	pause.For(ctx, slot)
	return ctx.Err()
}

// look reads one file and waits until its time is over. The error is that of a file that
// was not read, for want of something else than a sound disk.
func (s *Scrubber) look(ctx context.Context, f blob.File, slot time.Duration) error {
	began := time.Now()
	health, err := s.Store.Examine(ctx, f)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.Seen(health)
	switch health {
	case blob.Healed:
		s.Log.Warn("content was damaged on this disk and was fetched anew: look at the disk", "sha256", f.Sum)
	case blob.Corrupt:
		s.Log.Warn("content was damaged on this disk and nobody gives it: publish it again", "sha256", f.Sum, "error", err)
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
