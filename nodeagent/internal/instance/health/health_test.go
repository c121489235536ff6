package health

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard records what a server's checks reported.
type heard struct {
	mu       sync.Mutex
	unready  []string
	verdicts []Verdict
	players  int
}

func (h *heard) last() (why string, verdicts []Verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unready) > 0 {
		why = h.unready[len(h.unready)-1]
	}
	return why, h.verdicts
}

// subject is a server with a log, and a record of its reports.
func subject(t *testing.T) (Server, *heard) {
	t.Helper()
	logs := console.NewFollower(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { logs.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	h := &heard{}
	return Server{
		Hosts: []string{"127.0.0.1"}, Log: filepath.Join(t.TempDir(), "console.log"), Logs: logs, Heartbeats: NewHeartbeats(),
		OnPlayers: func(players, _ int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.players = players
		},
		OnUnready: func(why string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.unready = append(h.unready, why)
		},
	}, h
}

// inBackground runs do until the test ends and returns its result.
func inBackground(t *testing.T, do func(context.Context) error) <-chan error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { done <- do(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return done
}

func finished(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(await.Patience):
		t.Fatal("it goes on for ever")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestLogCheckIgnoresColoursAndEarlierRuns(t *testing.T) {
	for name, text := range map[string]string{
		"plain": "Done (3.2s)!\n", "coloured": "\x1b[32mDo\x1b[0mne (1s)\x1b[0m!\r\n", "after long output": strings.Repeat("x", 3*chunk) + "\nDone (1s)!\n",
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := subject(t)
			write(t, s.Log, "Done (1s)! said the run before\n")
			fi, err := os.Stat(s.Log)
			if err != nil {
				t.Fatal(err)
			}
			s.LogFrom = fi.Size()
			check := fleet.Check{Type: fleet.CheckLog, Pattern: `^Done \(.*\)!$`}
			ctx, cancel := context.WithCancel(t.Context())
			s.OnUnready = func(string) { write(t, s.Log, "not Done (1s)!\nDone (unfinished"); cancel() }
			if err := AwaitReady(ctx, s, check); !errs.Is(err, errs.Canceled) {
				t.Fatalf("ready without a line: %v", err)
			}
			s.OnUnready = func(string) {}
			done := inBackground(t, func(ctx context.Context) error { return AwaitReady(ctx, s, check) })
			half := len(text) / 2 // a line may come in parts
			write(t, s.Log, "\n"+text[:half])
			write(t, s.Log, text[half:])
			finished(t, done)
		})
	}
}

func TestProbeIsRepeatedUntilServerListens(t *testing.T) {
	s, h := subject(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Ports = map[string]int{"Query": l.Addr().(*net.TCPAddr).Port}
	_ = l.Close()
	done := inBackground(t, func(ctx context.Context) error {
		return AwaitReady(ctx, s, fleet.Check{Type: fleet.CheckPort, Port: "query"})
	})
	await.That(t, "a question without an answer", func() string {
		why, _ := h.last()
		return await.Unless(strings.Contains(why, "connection refused"), "%q", why)
	})
	l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.Ports["Query"]))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	finished(t, done)
}

func TestUnreadyReasonExplainsCheck(t *testing.T) {
	s, h := subject(t)
	for check, want := range map[fleet.Check]string{
		{Type: fleet.CheckMinecraft}:               "no port",
		{Type: fleet.CheckPort, Port: "query"}:     "no additional port query",
		{Type: fleet.CheckHeartbeat}:               "has not reported",
		{Type: fleet.CheckLog, Pattern: "^never$"}: `matches "^never$"`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		tell := s.OnUnready
		s.OnUnready = func(why string) { tell(why); cancel() }
		if err := AwaitReady(ctx, s, check); err == nil {
			t.Errorf("%s: ready", check.Type)
		}
		s.OnUnready = tell
		if why, _ := h.last(); !strings.Contains(why, want) {
			t.Errorf("%s: %q, want %q", check.Type, why, want)
		}
	}
}

func TestHeartbeatIsReadyOnlyIfReported(t *testing.T) {
	s, _ := subject(t)
	s.Heartbeats.Beat(false)
	ctx, cancel := context.WithCancel(t.Context())
	s.OnUnready = func(string) { cancel() }
	if err := AwaitReady(ctx, s, fleet.Check{Type: fleet.CheckHeartbeat}); err == nil {
		t.Fatal("any sign of life makes it ready")
	}
	s.Heartbeats.Beat(true)
	s.Heartbeats.Beat(false)
	if err := AwaitReady(t.Context(), s, fleet.Check{Type: fleet.CheckHeartbeat}); err != nil {
		t.Fatal(err)
	}
}

func TestReadinessAnyTakesFirstSignal(t *testing.T) {
	t.Run("the heartbeat", func(t *testing.T) {
		s, h := subject(t)
		s.Ping = fleet.Check{Type: fleet.CheckPort} // no listener
		done := inBackground(t, func(ctx context.Context) error { return AwaitReady(ctx, s, fleet.Check{Type: fleet.CheckAny}) })
		await.That(t, "what it waits for", func() string {
			why, _ := h.last()
			return await.Unless(strings.Contains(why, "not reported that it is ready, and it has no port"), "%q", why)
		})
		s.Heartbeats.Beat(false)
		s.Heartbeats.Beat(true)
		finished(t, done)
	})
	t.Run("the ping", func(t *testing.T) {
		s, _ := subject(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s.Port, s.Ping = l.Addr().(*net.TCPAddr).Port, fleet.Check{Type: fleet.CheckPort}
		if err := AwaitReady(t.Context(), s, fleet.Check{Type: fleet.CheckAny}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("neither", func(t *testing.T) {
		s, _ := subject(t)
		s.Heartbeats.Beat(false)
		ctx, cancel := context.WithCancel(t.Context())
		s.OnUnready = func(string) { cancel() }
		if err := AwaitReady(ctx, s, fleet.Check{Type: fleet.CheckAny}); !errs.Is(err, errs.Canceled) {
			t.Fatalf("ready by nothing: %v", err)
		}
	})
}

func TestProbeFailuresMakeUnhealthyUntilSuccess(t *testing.T) {
	s, h := subject(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	liveness := fleet.Liveness{Check: fleet.Check{Type: fleet.CheckPort}, IntervalSeconds: 0.1, Failures: 2, Successes: 2}
	inBackground(t, func(ctx context.Context) error {
		Watch(ctx, s, liveness, nil, func(v Verdict) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.verdicts = append(h.verdicts, v)
		})
		return nil
	})
	_ = l.Close()
	verdicts := func(n int) []Verdict {
		t.Helper()
		var got []Verdict
		await.That(t, "a verdict", func() string { _, got = h.last(); return await.Unless(len(got) == n, "%+v", got) })
		return got
	}
	if v := verdicts(1)[0]; !v.Unhealthy || !strings.Contains(v.Why, "connection refused, 2 times in a row") {
		t.Errorf("%+v", v)
	}
	if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port)); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if v := verdicts(2)[1]; v.Unhealthy {
		t.Errorf("%+v", v)
	}
}

func TestSilenceMakesUnhealthyAfterLimit(t *testing.T) {
	const limit = 80 * time.Second
	cases := map[string]struct {
		beats  []time.Duration
		closed func(since time.Duration) bool
		want   time.Duration // since the last beat or the way's opening, at least; a step more at most
		from   time.Duration
	}{
		"no heartbeat":         {nil, nil, limit, 0},
		"heartbeats that stop": {[]time.Duration{30 * time.Second, 60 * time.Second, 130 * time.Second}, nil, limit, 130 * time.Second},
		"unreachable at first": {nil, func(d time.Duration) bool { return d < 5*time.Minute }, limit, 5 * time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, p := time.Now(), NewHeartbeats()
				go func() {
					for _, at := range c.beats {
						<-time.After(at - time.Since(begun))
						p.Beat(false)
					}
				}()
				open := func(context.Context) bool { return c.closed == nil || !c.closed(time.Since(begun)) }
				if _, err := p.awaitSilence(t.Context(), limit, open); err != nil {
					t.Fatal(err)
				}
				if after := time.Since(begun) - c.from; after < c.want-limit/silenceSteps || after > c.want+limit/silenceSteps {
					t.Errorf("unhealthy %v after the last that was heard", after)
				}
			})
		})
	}
}

func TestHeartbeatMakesHealthyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, verdicts := NewHeartbeats(), make(chan Verdict, 8)
		ctx, cancel := context.WithCancel(t.Context())
		go Watch(ctx, Server{Heartbeats: p}, fleet.Liveness{Check: fleet.Check{Type: fleet.CheckHeartbeat}, IntervalSeconds: 5},
			func(context.Context) bool { return true }, func(v Verdict) { verdicts <- v })
		if v := <-verdicts; !v.Unhealthy || !strings.Contains(v.Why, "5s") {
			t.Errorf("%+v", v)
		}
		p.Beat(false)
		if v := <-verdicts; v.Unhealthy {
			t.Errorf("%+v", v)
		}
		if v := <-verdicts; !v.Unhealthy {
			t.Errorf("%+v", v)
		}
		cancel()
		synctest.Wait()
	})
}

func TestRevokedNodeIsUnreachable(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	var revoked, away atomic.Bool
	gateway := &Gateway{
		URL: func() string { return server.URL }, Session: func() bool { return !away.Load() },
		Revoked: func(context.Context) bool { return revoked.Load() }, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	is := func(want bool) {
		t.Helper()
		await.That(t, fmt.Sprintf("open is %v", want), func() string { return await.Unless(gateway.Reachable(t.Context()) == want, "it is not") })
	}
	is(true)
	revoked.Store(true)
	is(false)
	revoked.Store(false)
	is(true)
	away.Store(true)
	is(false)
}

func TestTallyChangesAfterConsecutiveResults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := tally{failures: rapid.IntRange(1, 5).Draw(t, "failures"), successes: rapid.IntRange(1, 5).Draw(t, "successes")}
		answers := rapid.SliceOf(rapid.Bool()).Draw(t, "answers")
		unhealthy := false
		for n, ok := range answers {
			needed, same := c.failures, 0
			if unhealthy {
				needed = c.successes
			}
			for k := n; k >= 0 && answers[k] == ok; k-- {
				same++
			}
			want := ok == unhealthy && same >= needed
			if got := c.add(ok); got != want {
				t.Fatalf("answer %d, the %dth %v in a row while unhealthy is %v: changed %v", n, same, ok, unhealthy, got)
			}
			if want {
				unhealthy = !unhealthy
			}
			if c.unhealthy != unhealthy {
				t.Fatalf("unhealthy is %v", c.unhealthy)
			}
		}
	})
}

func TestPausesGrowWithStartTime(t *testing.T) {
	wait, passed := firstPause, time.Duration(0)
	questions := 0
	for passed < 2*time.Minute {
		passed += wait
		next := nextPause(wait, passed)
		if next < wait && next < shortPause || next > longPause {
			t.Fatalf("after %v: %v follows %v", passed, next, wait)
		}
		if wait > max(2*firstPause, shortPause) && wait > passed/5 {
			t.Fatalf("after %v the pause is %v", passed, wait)
		}
		wait = next
		questions++
	}
	if questions > 150 {
		t.Errorf("%d questions in two minutes", questions)
	}
}
