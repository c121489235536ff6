// Package pause waits between two attempts, no longer than anybody wants to know.
package pause

import (
	"context"
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
