package events_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func (r *replica) follow(after events.Position, want func(events.Event) bool) *events.Follower {
	f := events.NewSource(r.client, r.log, slog.New(slog.DiscardHandler)).Follow(after, want)
	r.t.Cleanup(f.Close)
	return f
}

// next reads until there are events, or some were lost.
func next(t *testing.T, f *events.Follower) (groups []fleet.GroupName, last events.Part) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for ctx.Err() == nil {
		part, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(part.Events) == 0 && !part.Lost {
			continue
		}
		for _, e := range part.Events {
			groups = append(groups, e.Group)
		}
		return groups, part
	}
	t.Fatal("no events came")
	return nil, last
}

func TestAFollowerReadsTheLogAndTheHistoryBeforeIt(t *testing.T) {
	etcd := storetest.Start(t)
	a := newReplica(t, etcd)
	first := a.createGroup("a")
	a.createGroup("b")
	late := newReplica(t, etcd) // its log begins after both
	late.waitFor(first + 1)
	f := late.follow(events.Position{Rev: first - 1}, func(e events.Event) bool { return e.Type == events.GroupCreated })
	got, _ := next(t, f)
	late.createGroup("c")
	more, part := next(t, f)
	if all := append(got, more...); !slices.Equal(all, []fleet.GroupName{"a", "b", "c"}) {
		t.Errorf("%v", all)
	}
	if part.UpTo.Rev != late.log.Head() {
		t.Errorf("complete up to %v, the log to %d", part.UpTo, late.log.Head())
	}
	// Another one continues at a position, and skips what it does not want.
	g := late.follow(events.Position{Rev: first}, func(e events.Event) bool { return e.Group == "c" })
	if got, _ := next(t, g); !slices.Equal(got, []fleet.GroupName{"c"}) {
		t.Errorf("%v", got)
	}
}

func TestAFollowerIsToldThatItsPositionIsTooOld(t *testing.T) {
	etcd := storetest.Start(t)
	a := newReplica(t, etcd)
	first := a.createGroup("a")
	a.createGroup("b")
	etcd.Compact(t)
	late := newReplica(t, etcd)
	f := late.follow(events.Position{Rev: first - 1}, func(events.Event) bool { return true })
	got, part := next(t, f)
	if !part.Lost || len(got) != 0 || part.UpTo.Rev != late.log.Head() {
		t.Errorf("%v, %+v", got, part)
	}
	late.createGroup("c")
	if got, part := next(t, f); part.Lost || !slices.Equal(got, []fleet.GroupName{"c"}) {
		t.Errorf("%v, %+v", got, part)
	}
}

func TestAFollowerThatIsCanceledReportsWhatItSkipped(t *testing.T) {
	a := newReplica(t, storetest.Start(t))
	f := a.follow(events.Position{Rev: a.log.Head()}, func(events.Event) bool { return false })
	rev := a.createGroup("a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	part, err := f.Next(ended)
	if err != nil || len(part.Events) != 0 || part.Lost || part.UpTo.Rev < rev {
		t.Errorf("%+v, %v", part, err)
	}
}
