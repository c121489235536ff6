package txn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// patience is how long a request waits for etcd. Checking whether a write with a lost answer
// happened (store.Commit) may add a few seconds.
const patience = 4 * time.Second

// InTime calls ask with a time limit of patience. It adds a message to errors that say that etcd is
// unreachable, that etcd has the data of another cluster, or that this gateway's view is behind.
func InTime(ctx context.Context, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := ask(bounded)
	var foreign *store.ForeignError
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.As(err, &foreign):
		return unavailable(err, "this gateway's etcd holds the data of another cluster or none: the gateway changes nothing, and its log has the details; running instances continue")
	case errors.Is(err, store.ErrUnreachable):
		return unavailable(err, "etcd is not reachable: a requested change may have been made or not; running instances continue, and `nodeagent local` on their node operates them")
	case errors.Is(err, view.ErrBehind):
		return unavailable(err, "this gateway is behind etcd: a requested change may have been made; read the object again in a moment before you retry")
	}
	return err
}

func unavailable(err error, message string) error {
	return &errs.Error{Op: "operate", Kind: errs.Unavailable, Err: err, Message: message}
}

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
