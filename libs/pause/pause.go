// Package pause waits between two attempts, no longer than anybody wants to know.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits; false when ctx ended first. It returns at once when d is not
// positive, and when ctx has ended already it is false whatever d is.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Jittered waits like For, a random time between half of d and d. Many processes that
// lost the same thing at one moment then retry at different moments.
func Jittered(ctx context.Context, d time.Duration) bool {
	return For(ctx, d-rand.N(d/2+1))
}
