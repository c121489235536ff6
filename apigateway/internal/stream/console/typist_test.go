package console

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a fake console that accepts lines at once, or only when the test allows it.
type desk struct {
	mu    sync.Mutex
	typed []string
	said  []error
	let   chan struct{}
}

func (d *desk) typist() *typist {
	return &typist{
		send: func(ctx context.Context, line string) error {
			select {
			case <-d.let:
			case <-ctx.Done():
				return ctx.Err()
			}
			if line == "bad" {
				return errs.Field("command", "is bad")
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.typed = append(d.typed, line)
			return nil
		},
		complain: func(err error) { d.said = append(d.said, err) },
	}
}

func TestNobodyWaitsForAnAgentThatIsSlowToTakeALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{let: make(chan struct{})}
		typing := d.typist()
		typing.begin(t.Context())
		var want []string
		for n := 0; ; n++ {
			line := fmt.Sprint("line ", n)
			if err := typing.add(line); err != nil {
				if !errs.Is(err, errs.Exhausted) || n < maxWaiting {
					t.Errorf("line %d: %v", n, err)
				}
				break
			}
			want = append(want, line)
			synctest.Wait() // the first line is being sent
		}
		close(d.let)
		typing.end()
		if !slices.Equal(d.typed, want) {
			t.Errorf("%d lines were typed of %d", len(d.typed), len(want))
		}
	})
}

func TestALineThatIsRefusedIsToldAndTheNextIsTyped(t *testing.T) {
	d := &desk{let: make(chan struct{})}
	close(d.let)
	typing := d.typist()
	typing.begin(t.Context())
	for _, line := range []string{"one", "bad", "two"} {
		if err := typing.add(line); err != nil {
			t.Fatal(err)
		}
	}
	typing.end()
	if !slices.Equal(d.typed, []string{"one", "two"}) || len(d.said) != 1 || errs.FieldOf(d.said[0]) != "command" {
		t.Errorf("%q, %v", d.typed, d.said)
	}
}

func TestWhatWaitsWhenTheClientLeavesIsNotTypedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{let: make(chan struct{})}
		typing := d.typist()
		typing.begin(t.Context())
		for range 3 {
			if err := typing.add("line"); err != nil {
				t.Fatal(err)
			}
		}
		typing.end()
		if len(d.typed) > 0 || len(d.said) > 0 {
			t.Errorf("%q, %v", d.typed, d.said)
		}
	})
}
