// Package pause sleeps with a context.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For sleeps for d, or until ctx ends. It reports whether ctx is still active. It does not sleep
// if d is not positive.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Jittered is For with a random duration between d/2 and d, so that processes that failed at the
// same moment retry at different moments.
func Jittered(ctx context.Context, d time.Duration) bool {
	return For(ctx, d-rand.N(d/2+1))
}
