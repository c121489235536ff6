package auth

import (
	"context"
	"time"
)

const (
	// maxBackground is the length of the queue of background writes. Writes that do not fit are dropped; the
	// next request schedules them again.
	maxBackground = 64
	// backgroundTimeout limits one background write.
	backgroundTimeout = 5 * time.Second
)

// inBackground queues a background write if the queue has space. It never blocks.
func (s *Service) inBackground(write func(context.Context) error) {
	select {
	case s.background <- write:
	default:
	}
}

// Run performs the background writes until ctx ends: last uses of API tokens and rehashed passwords.
func (s *Service) Run(ctx context.Context) {
	for {
		select {
		case write := <-s.background:
			limited, cancel := context.WithTimeout(ctx, backgroundTimeout)
			err := write(limited)
			cancel()
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Debug("a background write failed", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
