package auth

import (
	"context"
	"time"
)

const (
	// maxBehind is the length of the queue of background writes. Writes that do not fit are dropped; the
	// next request schedules them again.
	maxBehind = 64
	// behindPatience limits one background write.
	behindPatience = 5 * time.Second
)

// later queues a background write if the queue has space. It never blocks.
func (s *Service) later(write func(context.Context) error) {
	select {
	case s.behind <- write:
	default:
	}
}

// Run performs the background writes until ctx ends: last uses of API tokens and rehashed passwords.
func (s *Service) Run(ctx context.Context) {
	for {
		select {
		case write := <-s.behind:
			if err := s.patiently(ctx, write); err != nil && ctx.Err() == nil {
				s.cfg.Log.Debug("what can wait was not written", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *Service) patiently(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, behindPatience)
	defer cancel()
	return write(ctx)
}
