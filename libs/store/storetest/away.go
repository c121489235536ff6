package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
)

// unreachable is an etcd client whose requests all fail at once. It is not safe for concurrent use.
type unreachable struct {
	clientv3.KV
	asked []time.Time
}

func (n *unreachable) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	n.asked = append(n.asked, time.Now())
	return nil, away()
}

// RetriesDiffer checks that processes which lost etcd at the same moment do not retry at the same
// moment. run is one of them: it retries until its context ends, with pauses of at most longest.
func RetriesDiffer(t *testing.T, longest time.Duration, run func(context.Context, *store.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const processes, tries = 20, 10
		ctx, cancel := context.WithCancel(t.Context())
		etcds := make([]unreachable, processes)
		var running sync.WaitGroup
		for n := range etcds {
			cli := clientv3.NewCtxClient(ctx)
			cli.KV = &etcds[n]
			running.Go(func() { run(ctx, store.New(cli, store.Options{})) })
		}
		pause.For(ctx, tries*longest)
		cancel()
		running.Wait()
		var moments []time.Time
		for n := range etcds {
			asked := etcds[n].asked
			if len(asked) < tries {
				t.Fatalf("a process tried %d times within %v, want at least %d times", len(asked), tries*longest, tries)
			}
			moments = append(moments, asked[tries-1])
		}
		slices.SortFunc(moments, time.Time.Compare)
		if different := slices.CompactFunc(slices.Clone(moments), time.Time.Equal); len(different) < processes/2 {
			t.Errorf("%d processes tried at %d moments the %dth time", processes, len(different), tries)
		}
		if apart := moments[processes-1].Sub(moments[0]); apart < longest/2 {
			t.Errorf("the tries of %d processes are %v apart, want at least %v", processes, apart, longest/2)
		}
	})
}
