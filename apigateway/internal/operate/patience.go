package operate

import (
	"context"
	"errors"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// patience is how long whoever asked waits for etcd. The question whether a write
// with a lost answer happened (store.Commit) may add a few seconds.
const patience = 4 * time.Second

// errNoAnswer is the cause of a context that ended because etcd did not answer.
var errNoAnswer = errors.New("etcd did not answer in time")

// InTime asks etcd something on behalf of a request, which would otherwise wait as long as
// etcd is away. Unavailable when there is no answer in a few seconds, or only a closed
// connection, as from a load balancer: what was asked for may have happened then. The message
// says how the fleet is operated meanwhile.
func InTime(ctx context.Context, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	err := ask(bounded)
	silent := errors.Is(context.Cause(bounded), errNoAnswer)
	refused := errs.Is(err, errs.Unavailable) && errs.MessageOf(err) == errs.MessageOf(nil)
	if err == nil || ctx.Err() != nil || !silent && !refused {
		return err
	}
	return &errs.Error{
		Op: "operate", Kind: errs.Unavailable, Err: err,
		Message: "etcd is not reachable: a change that was asked for may have been made or not; what runs goes on, and on its node `nodeagent local` operates it",
	}
}
