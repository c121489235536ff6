package upstream

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// counter returns the number of its calls.
type counter struct {
	mu    sync.Mutex
	asked int
	takes time.Duration
}

func (c *counter) ask(ctx context.Context) (Live, error) {
	c.mu.Lock()
	c.asked++
	n := c.asked
	c.mu.Unlock()
	select {
	case <-time.After(c.takes):
		return Live{PID: n}, nil
	case <-ctx.Done():
		return Live{}, errs.Wrap("asked", ctx.Err())
	}
}

func TestAnAgentIsAskedOnceASecondForAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFigures(), &counter{takes: time.Millisecond}
		one, other := &fleet.Instance{Status: &fleet.Status{}}, &fleet.Instance{Status: &fleet.Status{}}
		one.Intent.ID, other.Intent.ID = "aaaaaa", "bbbbbb"
		shows := func(what string, i *fleet.Instance, want int) {
			t.Helper()
			if got, err := f.get(t.Context(), i, c.ask); err != nil || got.PID != want {
				t.Errorf("%s: answer %d, %v; want %d", what, got.PID, err, want)
			}
		}
		shows("at first", one, 1)
		shows("at once again", one, 1)
		shows("another", other, 2)
		<-time.After(liveFor)
		shows("a second later", one, 3)
		one.Status = &fleet.Status{}
		shows("in another state", one, 4)
		f.forget(one.Intent.ID)
		shows("when it spoke itself", one, 5)
	})
}

func TestManyWhoLookAtOnceWaitForOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFigures(), &counter{takes: liveBudget / 2}
		i := &fleet.Instance{}
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		look := func(ctx context.Context) {
			if got, err := f.get(ctx, i, c.ask); err != nil || got.PID != 1 {
				t.Errorf("answer %d, %v", got.PID, err)
			}
		}
		all.Go(func() { look(gone) })
		synctest.Wait()
		for range 10 {
			all.Go(func() { look(t.Context()) })
		}
		synctest.Wait()
		leave() // the first caller gives up
		all.Wait()
	})
}

func TestAnAgentThatIsSlowIsNotWaitedForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newFigures(), &counter{takes: time.Hour}
		began := time.Now()
		if _, err := f.get(t.Context(), &fleet.Instance{}, c.ask); err == nil || time.Since(began) != liveBudget {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestSoManyFiguresAreRememberedAndNoMore(t *testing.T) {
	f := newFigures()
	for n := range 3 * maxFigures {
		f.of(&fleet.Instance{Intent: fleet.Intent{ID: fleet.InstanceID(fmt.Sprint(n))}})
	}
	if len(f.young)+len(f.old) > 2*maxFigures {
		t.Errorf("%d are remembered", len(f.young)+len(f.old))
	}
}
