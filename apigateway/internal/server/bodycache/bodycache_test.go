package bodycache

import (
	"sync"
	"testing"
)

// maker counts the values it creates.
type maker struct{ made int }

func (m *maker) make() int { m.made++; return m.made }

func TestAnObjectIsEncodedOncePerWhatItIsShownFrom(t *testing.T) {
	o, m := NewObjects[string, int, int](), &maker{}
	for _, c := range []struct {
		name       string
		from, want int
	}{
		{"a", 1, 1},
		{"a", 1, 1},
		{"b", 1, 2},
		{"a", 1, 1},
		{"a", 2, 3},
		{"a", 2, 3},
		{"a", 1, 4}, // an older version again: not cached anymore
	} {
		if got := o.Get(c.name, c.from, m.make); got != c.want {
			t.Errorf("%s of %d: %d, want %d", c.name, c.from, got, c.want)
		}
	}
}

func TestSoManyObjectsAreKeptAndNoMore(t *testing.T) {
	o, m := NewObjects[int, int, int](), &maker{}
	for n := range 3 * maxObjects {
		o.Get(n, 0, m.make)
	}
	if kept := len(o.young) + len(o.old); kept > 2*maxObjects {
		t.Errorf("%d are kept", kept)
	}
	if got := o.Get(3*maxObjects-1, 0, m.make); got != 3*maxObjects {
		t.Errorf("the last is made again: %d", got)
	}
}

func TestAWholeIsMadeOncePerEdition(t *testing.T) {
	memo, m := NewMemo[int, string](100, func(int) int { return 1 }), &maker{}
	for _, c := range []struct {
		edition int
		q       string
		want    int
	}{
		{1, "a", 1}, {1, "a", 1}, {1, "b", 2}, {1, "a", 1}, {2, "a", 3}, {2, "a", 3}, {1, "a", 4},
	} {
		if got := memo.Get(c.edition, c.q, m.make); got != c.want {
			t.Errorf("%s of edition %d: %d, want %d", c.q, c.edition, got, c.want)
		}
	}
}

func TestManyWhoAskAtOnceWaitForOneWhole(t *testing.T) {
	memo, m := NewMemo[int, string](100, func(int) int { return 1 }), &maker{}
	asked, begin := make(chan struct{}, 10), make(chan struct{})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			asked <- struct{}{}
			if got := memo.Get(1, "a", func() int { <-begin; return m.make() }); got != 1 {
				t.Errorf("whole %d", got)
			}
		})
	}
	for range 10 {
		<-asked
	}
	close(begin)
	all.Wait()
}

func TestWholesOfSoMuchAreKeptAndNoMore(t *testing.T) {
	memo, m := NewMemo[int, int](10, func(int) int { return 4 }), &maker{}
	for n := range 4 {
		memo.Get(1, n, m.make)
	}
	if len(memo.wholes) != 2 || memo.sum != 8 {
		t.Errorf("%d are kept, of %d together", len(memo.wholes), memo.sum)
	}
	if got := memo.Get(1, 0, m.make); got != 1 {
		t.Errorf("the first is made again: %d", got)
	}
	if got := memo.Get(1, 3, m.make); got != 5 {
		t.Errorf("the last is kept: %d", got)
	}
	many := NewMemo[int, int](1<<30, func(int) int { return 1 })
	for n := range 2 * maxWholes {
		many.Get(1, n, m.make)
	}
	if len(many.wholes) > maxWholes {
		t.Errorf("%d are kept", len(many.wholes))
	}
}
