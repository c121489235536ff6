package turns

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

// book records the order in which instances get their turns.
type book struct {
	mu    sync.Mutex
	order []fleet.InstanceID
	waits int
}

func (b *book) take(ctx context.Context, t *Turns, id fleet.InstanceID, r Rank) {
	err := t.Take(ctx, id, r, func(int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waits++
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.order = append(b.order, id)
	}
}

// got returns the order so far.
func (b *book) got() []fleet.InstanceID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order)
}

// restart forgets the order so far.
func (b *book) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order = nil
}

func TestTurnsAreInOrderOfRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, b := New(Config{Limit: 2, Settle: time.Second}), &book{}
		for n, r := range []Rank{{0, 0}, {0, 5}, {1, 0}, {0, 0}, {-1, 100}, {1, 2}} {
			go b.take(t.Context(), turns, fleet.InstanceID(fmt.Sprint(n)), r)
			synctest.Wait()
		}
		if len(b.got()) != 0 || b.waits != 6 {
			t.Fatalf("turns before they have settled: %v, %d wait", b.got(), b.waits)
		}
		<-time.After(time.Second)
		synctest.Wait()
		first := slices.Sorted(slices.Values(b.got())) // both are granted at the same time
		if want := []fleet.InstanceID{"2", "5"}; !slices.Equal(first, want) {
			t.Fatalf("the first turns are %v", first)
		}
		b.restart()
		for _, id := range []fleet.InstanceID{"5", "2", "1", "0"} {
			turns.Give(id)
			synctest.Wait()
		}
		if want := []fleet.InstanceID{"1", "0", "3", "4"}; !slices.Equal(b.got(), want) {
			t.Errorf("the next turns are %v, want %v", b.got(), want)
		}
	})
}

func TestATurnEndsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, b := New(Config{Limit: 1}), &book{}
		b.take(t.Context(), turns, "a", Rank{})
		go b.take(t.Context(), turns, "b", Rank{})
		<-time.After(MaxTurn)
		synctest.Wait()
		if len(b.got()) != 2 {
			t.Fatalf("turns %v", b.got())
		}
		turns.Give("a") // it has none any more
		go b.take(t.Context(), turns, "c", Rank{})
		synctest.Wait()
		if len(b.got()) != 2 {
			t.Errorf("b lost its turn: %v", b.got())
		}
		turns.Give("b")
		synctest.Wait()
		turns.Give("c")
	})
}

func TestTheLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, b := New(Config{Limit: 1, For: time.Minute}), &book{}
		for _, id := range []fleet.InstanceID{"a", "b", "c"} {
			go b.take(t.Context(), turns, id, Rank{})
		}
		synctest.Wait()
		if len(b.got()) != 1 {
			t.Fatalf("turns %v", b.got())
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(b.got()) != 3 {
			t.Errorf("turns %v after the limit has ended", b.got())
		}
		turns.Give("a")
		turns.Give("b")
		turns.Give("c")
		<-time.After(MaxTurn) // the timer of the first turn
	})
}

func TestWithoutALimitNothingWaits(t *testing.T) {
	turns, b := New(Config{}), &book{}
	for n := range 100 {
		b.take(t.Context(), turns, fleet.InstanceID(fmt.Sprint(n)), Rank{})
	}
	if len(b.got()) != 100 || b.waits != 0 {
		t.Errorf("%d turns, %d waited", len(b.got()), b.waits)
	}
}

// TestTurnsAreNeverLost takes, cancels and gives back turns at random.
func TestTurnsAreNeverLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(t, "limit")
		turns := New(Config{Limit: limit})
		queue := map[fleet.InstanceID]*waiter{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			id := fleet.InstanceID(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id")))
			w := queue[id]
			switch {
			case w == nil && turns.holding[id] != nil:
				turns.Give(id)
			case w == nil:
				if w, _ := turns.enqueue(id, Rank{Priority: rapid.IntRange(0, 2).Draw(t, "priority")}); w != nil {
					queue[id] = w
				}
			default:
				turns.leave(w)
				delete(queue, id)
			}
			for id, w := range queue {
				select {
				case <-w.granted:
					delete(queue, id)
				default:
				}
			}
			if len(turns.holding) > limit {
				t.Fatalf("%d turns of %d", len(turns.holding), limit)
			}
			if len(turns.waiting) != len(queue) || len(turns.waiting) > 0 && len(turns.holding) < limit {
				t.Fatalf("%d wait, %d have a turn of %d", len(turns.waiting), len(turns.holding), limit)
			}
			if !slices.IsSortedFunc(turns.waiting, func(a, b *waiter) int {
				if before(a.rank, b.rank) {
					return -1
				}
				return 0
			}) {
				t.Fatal("the order is wrong")
			}
		}
		for id := range turns.holding {
			turns.Give(id)
		}
	})
}
