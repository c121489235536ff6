package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal records the order of events.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) want(t *testing.T, lines ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, lines) {
		t.Errorf("happened %q\nwant     %q", j.lines, lines)
	}
}

// component returns a component that records its calls.
func (j *journal) component(name string) lifecycle.Component {
	return lifecycle.Component{
		Name:  name,
		Start: func(context.Context) error { j.add("start " + name); return nil },
		Run: func(ctx context.Context) error {
			<-ctx.Done()
			j.add("end " + name)
			return ctx.Err()
		},
		Stop: func(context.Context) error { j.add("stop " + name); return nil },
	}
}

func TestComponentsStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), j.component("a"), j.component("b")); err != nil {
			t.Error(err)
		}
		j.want(t, "start a", "start b", "stop b", "end b", "stop a", "end a")
	})
}

func TestTheFirstFailureStopsAll(t *testing.T) {
	boom := errors.New("boom")
	cases := []struct {
		name string
		run  func(ctx context.Context) error
		want string
	}{
		{"an error", func(context.Context) error { return boom }, "b: run: boom"},
		{"an end that nobody asked for", func(context.Context) error { return nil }, "b: ended unexpectedly"},
		{"a panic", func(context.Context) error { panic("boom") }, "b: panic in run: boom"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				b := lifecycle.Component{Name: "b", Run: func(ctx context.Context) error {
					<-time.After(time.Minute)
					return c.run(ctx)
				}}
				err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), j.component("a"), b, j.component("c"))
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				j.want(t, "start a", "start c", "stop c", "end c", "stop a", "end a")
			})
		})
	}
}

func TestErrEndStopsAllWithoutFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		b := lifecycle.Component{Name: "b", Run: func(context.Context) error {
			<-time.After(time.Minute)
			return lifecycle.ErrEnd
		}}
		if err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), j.component("a"), b, j.component("c")); err != nil {
			t.Error(err)
		}
		j.want(t, "start a", "start c", "stop c", "end c", "stop a", "end a")
	})
}

func TestErrEndOfSeveralComponentsIsNoFailure(t *testing.T) {
	for name, after := range map[string]time.Duration{"before the stop": 0, "while the others stop": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				asked := func(name string, after time.Duration) lifecycle.Component {
					return lifecycle.Component{Name: name, Run: func(context.Context) error {
						<-time.After(time.Minute + after)
						return lifecycle.ErrEnd
					}}
				}
				if err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), asked("b", after), j.component("a"), asked("c", 0)); err != nil {
					t.Error(err)
				}
				j.want(t, "start a", "stop a", "end a")
			})
		})
	}
}

func TestErrEndDuringStartIsNoFailure(t *testing.T) {
	for name, c := range map[string]struct {
		start func(context.Context) error
		fails string
		want  []string
	}{
		"the start is given up":    {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "", []string{"start a", "stop a", "end a"}},
		"it is through after all":  {func(ctx context.Context) error { <-ctx.Done(); return nil }, "", []string{"start a", "stop b", "end b", "stop a", "end a"}},
		"it fails, and that is it": {func(ctx context.Context) error { <-ctx.Done(); return errors.New("boom") }, "b: start: boom", []string{"start a", "stop a", "end a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				asked := lifecycle.Component{Name: "asked", Run: func(context.Context) error {
					<-time.After(time.Second)
					return lifecycle.ErrEnd
				}}
				b := j.component("b")
				b.Start = c.start
				err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), asked, j.component("a"), b, j.component("c"))
				if got := fmt.Sprint(err); err != nil && got != c.fails || err == nil && c.fails != "" {
					t.Errorf("got %v, want %q", err, c.fails)
				}
				j.want(t, c.want...)
			})
		})
	}
}

func TestFailedStartStopsStartedComponents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		b := j.component("b")
		b.Start = func(context.Context) error { return errs.New(errs.Conflict, "port 8080 is taken") }
		err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), j.component("a"), b, j.component("c"))
		if !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "b: start: port 8080 is taken") {
			t.Errorf("got %v", err)
		}
		j.want(t, "start a", "stop a", "end a")
	})
}

func TestFailureDuringStartAbortsTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		a := lifecycle.Component{Name: "a", Run: func(context.Context) error {
			<-time.After(time.Second)
			return errors.New("boom")
		}}
		b := j.component("b")
		b.Start = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), a, b)
		if err == nil || err.Error() != "a: run: boom" {
			t.Errorf("got %v", err)
		}
		j.want(t)
	})
}

func TestStopDuringStartIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		b := j.component("b")
		b.Start = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), j.component("a"), b, j.component("c")); err != nil {
			t.Error(err)
		}
		j.want(t, "start a", "stop a", "end a")
	})
}

func TestComponentRunsUntilItsTurnToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan context.Context, 1)
		a := lifecycle.Component{Name: "a", Run: func(ctx context.Context) error {
			first <- ctx
			<-ctx.Done()
			return nil
		}}
		b := lifecycle.Component{Name: "b", Stop: func(context.Context) error {
			<-time.After(time.Second)
			return (<-first).Err()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), a, b); err != nil {
			t.Errorf("the earlier component was cancelled too soon: %v", err)
		}
	})
}

func TestHangingComponentTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		release := make(chan struct{})
		b := lifecycle.Component{
			Name: "b", StopTimeout: 5 * time.Second,
			Run: func(context.Context) error { <-release; return nil },
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), j.component("a"), b)
		if err == nil || err.Error() != "b: did not stop within 5s" {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("Run took %v, want 6s", took)
		}
		j.want(t, "start a", "stop a", "end a")
		close(release)
	})
}

func TestSlowStopIsCancelledInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), lifecycle.Component{
			Name: "http",
			Run:  func(ctx context.Context) error { <-ctx.Done(); return nil },
			Stop: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		})
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "did not stop") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 9*time.Second {
			t.Errorf("Run took %v, want 1s + four fifths of 10s", took)
		}
	})
}

func TestEveryFailureIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler),
			lifecycle.Component{Name: "a", Stop: func(context.Context) error { panic("first") }},
			lifecycle.Component{Name: "b", Run: func(ctx context.Context) error { <-ctx.Done(); return errors.New("second") }},
			lifecycle.Component{Name: "c", Run: func(context.Context) error { return errors.New("third") }},
		)
		for _, want := range []string{"a: panic in stop: first", "b: run: second", "c: run: third"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing in: %v", want, err)
			}
		}
	})
}

func TestPanicStackIsLogged(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	err := lifecycle.Run(t.Context(), log, lifecycle.Component{Name: "a", Start: func(context.Context) error { panic("boom") }})
	if err == nil || !strings.Contains(out.String(), "lifecycle_test.go") {
		t.Errorf("err %v, log %s", err, out.String())
	}
}

func TestAnErrorKeepsItsKind(t *testing.T) {
	err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), lifecycle.Component{
		Name: "etcd", Run: func(context.Context) error { return errs.New(errs.Unavailable, "no leader") },
	})
	if !errs.Is(err, errs.Unavailable) {
		t.Errorf("got %v", errs.KindOf(err))
	}
}
