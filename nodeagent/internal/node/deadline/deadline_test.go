package deadline

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDeadlineStages(t *testing.T) {
	d := Deadline{At: 1000, Margin: 200}
	for now, want := range map[Moment]Stage{0: Valid, 799: Valid, 800: Stopping, 899: Stopping, 900: Lapsed, 5000: Lapsed} {
		if got := d.Stage(now); got != want {
			t.Errorf("at %d: %v, want %v", now, got, want)
		}
	}
	if (Deadline{}).Stage(Now()) != Lapsed {
		t.Error("no deadline allows something")
	}
}

func TestRecordRoundTrip(t *testing.T) {
	f := create(t)
	rapid.Check(t, func(t *rapid.T) {
		want := Deadline{
			Boot:   rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}`).Draw(t, "boot"),
			At:     Moment(rapid.Int64Min(0).Draw(t, "at")),
			Margin: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "margin")),
		}
		if err := f.Write(want); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Read(); err != nil || got != want {
			t.Errorf("read %+v, %v, want %+v", got, err, want)
		}
	})
}

func TestDamagedRecordIsRejected(t *testing.T) {
	f := create(t)
	if _, err := f.Read(); !errs.Is(err, errs.Internal) {
		t.Errorf("an empty file: %v", err)
	}
	whole := Deadline{Boot: "boot", At: 123456, Margin: 7}.encode()
	for i := range whole {
		damaged := append([]byte(nil), whole...)
		damaged[i] ^= 1
		if d, ok := decode(damaged); ok {
			t.Errorf("with byte %d changed: %+v", i, d)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errs.Is(err, errs.NotFound) {
		t.Errorf("a missing file: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Deadline{Boot: "boot", At: 1, Margin: 2}.encode())
	f.Add([]byte("orrery-deadline 1 x 1 1 00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := decode(b); ok && string(d.encode()) != string(b) {
			t.Errorf("%q reads as %+v", b, d)
		}
	})
}

func TestSuspensionNeverMovesDeadlineLater(t *testing.T) {
	start := time.Now()
	k := &Keeper{readings: []reading{
		{boot: 1000, mono: start},
		{boot: Moment(1000 + time.Hour), mono: start.Add(time.Second)}, // the host slept for nearly an hour
	}}
	until := start.Add(10 * time.Second)
	if got, want := k.moment(start.Add(time.Second/2), until), Moment(1000).Add(10*time.Second); got != want {
		t.Errorf("sent before the sleep: %d, want %d", got, want)
	}
	if got, want := k.moment(start.Add(2*time.Second), until), Moment(1000).Add(time.Hour+9*time.Second); got != want {
		t.Errorf("sent after it: %d, want %d", got, want)
	}
	if len(k.readings) != 1 {
		t.Errorf("%d readings kept", len(k.readings))
	}
}

// session is a session as its keeper sees it.
type session struct {
	mu      sync.Mutex
	sent    time.Time
	ttl     time.Duration
	renewed chan struct{}
	done    chan struct{}
	hurried chan struct{}
}

func newSession(sent time.Time, ttl time.Duration) *session {
	return &session{sent: sent, ttl: ttl, renewed: make(chan struct{}), done: make(chan struct{}), hurried: make(chan struct{}, 1)}
}

func (s *session) Confirmed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}
func (s *session) Deadline() time.Time   { return s.Confirmed().Add(s.ttl) }
func (s *session) Done() <-chan struct{} { return s.done }
func (s *session) Renewed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

func (s *session) Hurry() {
	select {
	case s.hurried <- struct{}{}:
	default:
	}
}

func (s *session) renew(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = sent
	close(s.renewed)
	s.renewed = make(chan struct{})
}

// rig is a keeper that runs.
type rig struct {
	*Keeper
	file   *File
	ending chan Stage
}

func create(t *testing.T) *File {
	t.Helper()
	f, err := Create(filepath.Join(t.TempDir(), "deadline"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func keep(t *testing.T, before *Deadline) *rig {
	t.Helper()
	r := &rig{file: create(t), ending: make(chan Stage, 16)}
	if before != nil {
		if err := r.file.Write(*before); err != nil {
			t.Fatal(err)
		}
	}
	r.Keeper = NewKeeper(Config{
		File: r.file, Boot: "boot", TTL: time.Hour, Ending: func(s Stage) { r.ending <- s }, Log: slog.New(slog.DiscardHandler),
	})
	return r
}

func (r *rig) run(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) await(t *testing.T, want Stage) {
	t.Helper()
	select {
	case got := <-r.ending:
		if got != want {
			t.Fatalf("told of stage %v, want %v", got, want)
		}
	case <-time.After(await.Patience):
		t.Fatalf("not told of stage %v; it is %v", want, r.Stage())
	}
}

func (r *rig) stored(t *testing.T) Deadline {
	t.Helper()
	d, err := r.file.Read()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWithoutDeadlineStageIsLapsed(t *testing.T) {
	other := Deadline{Boot: "another boot", At: Now().Add(time.Hour), Margin: time.Second}
	for name, before := range map[string]*Deadline{"none": nil, "one of another boot": &other} {
		t.Run(name, func(t *testing.T) {
			r := keep(t, before)
			if r.Stage() != Lapsed {
				t.Errorf("stage %v", r.Stage())
			}
			r.run(t)
			r.await(t, Lapsed)
		})
	}
}

func TestPredecessorsDeadlineStaysInForce(t *testing.T) {
	before := Deadline{Boot: "boot", At: Now().Add(300 * time.Millisecond), Margin: 200 * time.Millisecond}
	r := keep(t, &before)
	r.run(t)
	r.await(t, Stopping)
	r.await(t, Lapsed)
	if now := Now(); now < before.KillAt() {
		t.Errorf("told too early: %d before %d", now, before.KillAt())
	}
}

func TestSessionAndRenewalsMoveDeadline(t *testing.T) {
	r := keep(t, nil)
	r.run(t)
	r.await(t, Lapsed)
	within, cancel := r.Within(t.Context())
	if within.Err() == nil {
		t.Error("work is allowed without a session")
	}
	cancel()
	opened := make(chan error, 1)
	go func() { opened <- r.Await(t.Context()) }()
	sent := time.Now()
	s := newSession(sent, time.Minute)
	r.Joined(s)
	if err := <-opened; err != nil || r.Stage() != Valid {
		t.Errorf("stage %v, %v", r.Stage(), err)
	}
	first := r.stored(t)
	left := time.Until(s.Deadline())
	if end := Now().Add(left); first.At > end || first.Margin != 20*time.Second {
		t.Errorf("deadline %+v is after the session's own %d", first, end)
	}
	s.renew(sent.Add(time.Second))
	await.That(t, "a later deadline", func() string {
		at := r.stored(t).At
		return await.Unless(at > first.At, "%v later", at.Sub(first.At))
	})
}

func TestUnrenewedSessionStopsThenKills(t *testing.T) {
	r := keep(t, nil)
	s := newSession(time.Now(), time.Second)
	r.Joined(s)
	r.await(t, Lapsed) // the state before
	r.run(t)
	r.await(t, Stopping)
	r.await(t, Lapsed)
	close(s.done)
}

func TestRevokedSessionLapsesAtOnce(t *testing.T) {
	r := keep(t, nil)
	s := newSession(time.Now(), time.Hour)
	r.Joined(s)
	r.await(t, Lapsed)
	r.run(t)
	within, cancel := r.Within(t.Context())
	defer cancel()
	if within.Err() != nil {
		t.Error("work is not allowed under a session")
	}
	close(s.done)
	r.await(t, Lapsed)
	<-within.Done()
	if d := r.stored(t); d.At > Now() {
		t.Errorf("the guards still have %v", d.At.Sub(Now()))
	}
	over, end := context.WithCancel(t.Context())
	end()
	if err := r.Await(over); !errs.Is(err, errs.Canceled) {
		t.Errorf("waiting in vain: %v", err)
	}
	r.Joined(newSession(time.Now(), time.Hour))
	if err := r.Await(t.Context()); err != nil {
		t.Errorf("a new session does not open: %v", err)
	}
}

// The end of a session and the next Joined may happen at once: the keeper then handles the end
// when it already has the newer session.
func TestEndOfReplacedSessionIsIgnored(t *testing.T) {
	r := keep(t, nil)
	ended, next := newSession(time.Now(), time.Hour), newSession(time.Now(), time.Hour)
	r.Joined(ended)
	r.await(t, Lapsed)
	close(ended.done)
	r.Joined(next)
	r.sessionEnded(ended)
	if r.Stage() != Valid {
		t.Fatalf("stage %v after the end of a replaced session", r.Stage())
	}
	r.run(t)
	close(next.done)
	r.await(t, Lapsed) // the newer session is still followed
}

func TestReplacingEndsStartsButNoInstances(t *testing.T) {
	r := keep(t, nil)
	former, next := newSession(time.Now(), time.Hour), newSession(time.Now(), time.Hour)
	r.Joined(former)
	r.await(t, Lapsed)
	within, cancel := r.Within(t.Context())
	defer cancel()
	r.Replacing()
	if r.Holds(within) || r.Stage() != Valid {
		t.Errorf("stage %v, a start that is under way holds: %v", r.Stage(), r.Holds(within))
	}
	close(former.done)
	r.run(t)
	r.Joined(next)
	if r.Stage() != Valid {
		t.Errorf("stage %v after the former session ended", r.Stage())
	}
	close(next.done)
	r.await(t, Lapsed) // the newer session is followed
}

func TestLapseIsAnnouncedBeforeNewSession(t *testing.T) {
	before := Deadline{Boot: "boot", At: Now(), Margin: time.Second}
	r := keep(t, &before)
	r.Joined(newSession(time.Now(), time.Hour))
	r.await(t, Lapsed)
	if r.Stage() != Valid {
		t.Errorf("stage %v", r.Stage())
	}
}

// Other nodes wait for the TTL of the last session.
func TestJoiningShortensDeadlineToNewTTL(t *testing.T) {
	for _, tt := range []struct{ left, margin, ttl, want, wantMargin time.Duration }{
		{time.Hour, time.Minute, 9 * time.Second, 9 * time.Second, 3 * time.Second},
		{time.Hour, time.Second, 9 * time.Second, 9 * time.Second, time.Second},
		{5 * time.Minute, time.Minute, time.Hour, 5 * time.Minute, time.Minute}, // early enough
	} {
		asked := Now()
		before := Deadline{Boot: "boot", At: asked.Add(tt.left), Margin: tt.margin}
		r := keep(t, &before)
		r.cfg.TTL = tt.ttl
		if err := r.Joining(); err != nil {
			t.Fatal(err)
		}
		d := r.stored(t)
		if d.At < asked.Add(tt.want) || d.At > Now().Add(tt.want) || d.Margin != tt.wantMargin || r.Stage() != Valid {
			t.Errorf("%v left, a TTL of %v: %v left with a margin of %v", tt.left, tt.ttl, d.At.Sub(asked), d.Margin)
		}
		if err := r.Joining(); err != nil || r.stored(t) != d {
			t.Errorf("a second attempt gave another time: %+v, %v", r.stored(t), err)
		}
	}
}

func TestJoiningFailsIfDeadlineCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deadline")
	if err := os.WriteFile(path, Deadline{Boot: "boot", At: Now().Add(time.Hour), Margin: time.Minute}.encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k := NewKeeper(Config{File: f, Boot: "boot", Ending: func(Stage) {}, Log: slog.New(slog.DiscardHandler)})
	if err := k.Joining(); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("joining: %v", err)
	}
}

func TestAlarmFiresAtMomentOrAtOnce(t *testing.T) {
	a, err := NewAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, at := range []Moment{0, Now().Add(20 * time.Millisecond)} {
		a.Set(at)
		<-a.Rings()
		if Now() < at {
			t.Errorf("rang %v too early", at.Sub(Now()))
		}
	}
}

// stepped is a rig with a session and a wall clock that the test steps.
func stepped(t *testing.T, ttl time.Duration) (r *rig, s *session, step func(time.Duration)) {
	t.Helper()
	r = keep(t, nil)
	var ahead atomic.Int64
	r.wallAhead, r.ahead = func() time.Duration { return time.Duration(ahead.Load()) }, 0
	r.run(t)
	r.await(t, Lapsed)
	s = newSession(time.Now(), ttl)
	r.Joined(s)
	return r, s, func(by time.Duration) { ahead.Add(int64(by)) }
}

func TestClockStepRequiresRenewal(t *testing.T) {
	r, s, step := stepped(t, time.Hour)
	within, cancel := r.Within(t.Context())
	defer cancel()
	before := r.stored(t)
	step(stepTolerance / 2)
	if !r.Holds(within) {
		t.Fatal("a small adjustment counts as a step")
	}
	step(time.Minute)
	if r.Holds(within) || within.Err() == nil {
		t.Error("a start is allowed before the session is renewed")
	}
	again, end := r.Within(t.Context())
	defer end()
	if again.Err() == nil {
		t.Error("another start is allowed before the session is renewed")
	}
	<-s.hurried
	if d := r.stored(t); d.At >= before.At || r.Stage() != Stopping {
		t.Errorf("the deadline %+v was not drawn in from %+v; stage %v", d, before, r.Stage())
	}
	s.renew(time.Now().Add(-time.Minute)) // it was sent before the step
	<-s.hurried
	opened := make(chan error, 1)
	go func() { opened <- r.Await(t.Context()) }()
	s.renew(time.Now())
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if d := r.stored(t); r.Stage() != Valid || d.At <= before.At {
		t.Errorf("after the renewal the deadline is %+v, before the step it was %+v; stage %v", d, before, r.Stage())
	}
	step(-time.Hour)
	if r.Stage() != Valid {
		t.Error("a step backward counts")
	}
	select {
	case stage := <-r.ending:
		t.Errorf("told of stage %v though the session stands", stage)
	default:
	}
}

func TestClockStepWithoutRenewalEndsInstances(t *testing.T) {
	r, _, step := stepped(t, 6*time.Second)
	before := r.stored(t)
	step(time.Minute)
	if r.Stage() == Valid {
		t.Error("nothing is in doubt")
	}
	r.await(t, Stopping)
	r.await(t, Lapsed)
	if d := r.stored(t); d.At >= before.At {
		t.Errorf("the deadline %+v was not drawn in from %+v", d, before)
	}
}

func TestClockWatchEndsWithKeeper(t *testing.T) {
	s, err := newStepAlarm()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	select {
	case <-s.Rings():
		t.Error("the clock was set, as far as the kernel tells")
	default:
	}
}
