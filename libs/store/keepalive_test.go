package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// renewals waits until a session was renewed a few times. It returns an error if a confirmed keep-alive
// was sent so late that exclusive instances would have begun to stop.
func renewals(ctx context.Context, s *store.Session, times int) error {
	for range times {
		renewed, until := s.Renewed(), s.Deadline()
		ttl := until.Sub(s.Confirmed())
		stopAt := until.Add(-fleet.ExclusiveMargin(ttl))
		select {
		case <-renewed:
		case <-s.Done():
			return errors.New("the session ended")
		case <-ctx.Done():
			return ctx.Err()
		}
		if late := s.Confirmed().Sub(stopAt); late >= 0 {
			return fmt.Errorf("the session was confirmed %v after its stop deadline", late)
		}
	}
	return nil
}

func TestSessionsSurviveOneHungMember(t *testing.T) {
	t.Parallel()
	const nodes, ttl = 16, 6 * time.Second
	etcd := storetest.StartProcesses(t, 3)
	leader := etcd.Leader(t)
	sessions := make([]*store.Session, nodes)
	for n := range sessions {
		node := fleet.NodeID(fmt.Sprintf("n%d", n))
		s, err := store.OpenSession(t.Context(), etcd.Client(t), keys.NodeSession(node), fleet.NodeSession{Node: node}, ttl, false)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Abandon()
		sessions[n] = s
	}
	for _, c := range []struct {
		hangs  string
		member int
	}{{"a follower", (leader + 1) % 3}, {"the leader", leader}} {
		etcd.Hang(t, c.member)
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		var watching sync.WaitGroup
		for n, s := range sessions {
			watching.Go(func() {
				if err := renewals(ctx, s, 3); err != nil {
					t.Errorf("%s hangs, node %d: %v", c.hangs, n, err)
				}
			})
		}
		watching.Wait()
		cancel()
		etcd.Resume(t, c.member)
	}
}
