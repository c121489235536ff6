package txn

import (
	"context"
	"sync"
)

type tellKey struct{}

// Telling returns a context whose operations report to heard the revision of each commit. An
// operation that changes nothing reports the revision of its snapshot.
func Telling(ctx context.Context, heard func(rev int64)) context.Context {
	return context.WithValue(ctx, tellKey{}, heard)
}

func tell(ctx context.Context, rev int64) {
	if heard, ok := ctx.Value(tellKey{}).(func(int64)); ok {
		heard(rev)
	}
}

// TellingInTurn serializes the reports of Telling, for operations that run in several goroutines.
func TellingInTurn(ctx context.Context) context.Context {
	var mu sync.Mutex
	return Telling(ctx, func(rev int64) {
		mu.Lock()
		defer mu.Unlock()
		tell(ctx, rev)
	})
}
