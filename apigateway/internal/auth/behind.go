package auth

import (
	"context"
	"time"
)

const (
	// maxBehind bounds what waits to be written behind requests; what does not fit is done
	// when there is a reason again.
	maxBehind = 64
	// behindPatience is how long one of them may take.
	behindPatience = 5 * time.Second
)

// later has something written behind the request, if there is room. It never waits.
func (s *Service) later(write func(context.Context) error) {
	select {
	case s.behind <- write:
	default:
	}
}

// Run writes what is to be written behind requests, until ctx ends: when API tokens were
// last used, and passwords that are kept in another way.
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
