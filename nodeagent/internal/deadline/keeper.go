package deadline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Session is what the keeper needs of a session; store.Session is one. Its times
// are of the monotonic clock.
type Session interface {
	// Confirmed is when the last confirmed keep-alive was sent, Deadline a TTL later.
	Confirmed() time.Time
	Deadline() time.Time
	// Renewed is closed when they move on, Done when the session is over.
	Renewed() <-chan struct{}
	Done() <-chan struct{}
	// Hurry makes it renew now.
	Hurry()
}

// Config is what a keeper needs. All are required.
type Config struct {
	// File takes the deadline; what a predecessor wrote into it holds on.
	File *File
	// Boot identifies the running kernel.
	Boot string
	// TTL is that of the sessions to come. A predecessor's may have been another.
	TTL time.Duration
	// Ending is called with each stage after Valid that is reached. It must not block.
	Ending func(Stage)
	Log    *slog.Logger
}

// Keeper follows the node's sessions. Make it with NewKeeper and run it once.
type Keeper struct {
	cfg     Config
	changed chan struct{}
	// wallAhead reads how far the wall clock is ahead of the boot clock.
	wallAhead func() time.Duration

	mu      sync.Mutex
	current Deadline
	// told is the stage that was last told, silent is true until the first look.
	told    Stage
	silent  bool
	session Session
	// turned is closed when told becomes Valid or ceases to be, and replaced.
	turned chan struct{}
	// terms are what Within gave out, to be ended with Valid.
	terms map[int]context.CancelFunc
	given int
	// ahead is what wallAhead said last. doubted is when it was found to have grown by a
	// step; zero once a keep-alive that was sent after that is confirmed.
	ahead   time.Duration
	doubted time.Time
	// readings are both clocks read at once, oldest first.
	readings []reading
}

// NewKeeper makes a keeper that goes on with what its predecessor left in the file.
func NewKeeper(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, wallAhead: wallAhead, ahead: wallAhead(), changed: make(chan struct{}, 1), turned: make(chan struct{}), told: Lapsed, silent: true, terms: map[int]context.CancelFunc{}}
	if d, err := cfg.File.Read(); err == nil && d.Boot == cfg.Boot {
		k.current, k.told = d, d.Stage(Now())
	}
	k.read()
	return k
}

// Stage is what the deadline means now.
func (k *Keeper) Stage() Stage {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stage()
}

// stage is what the deadline means now. While it is in doubt nothing may start. k.mu is held.
func (k *Keeper) stage() Stage {
	k.compare()
	stage := k.current.Stage(Now())
	if stage == Valid && !k.doubted.IsZero() {
		return Stopping
	}
	return stage
}

// Await returns when exclusive instances may start, or with ctx's error.
func (k *Keeper) Await(ctx context.Context) error {
	for {
		stage, turned := k.look()
		if stage == Valid {
			return nil
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return errs.Wrap("deadline.Await", ctx.Err())
		}
	}
}

// Within is ctx for as long as exclusive instances may start, without a break: it is
// ended before a later session makes that so again. The caller cancels it.
func (k *Keeper) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stage() != Valid {
		cancel()
		return ctx, cancel
	}
	k.given++
	term := k.given
	k.terms[term] = cancel
	return ctx, func() {
		cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.terms, term)
	}
}

// Holds reports whether a context of Within has held from then until now: no clock
// is waited for to say so.
func (k *Keeper) Holds(within context.Context) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stage() == Valid && within.Err() == nil
}

// look is the stage, and a channel that is closed when Valid begins or ends.
func (k *Keeper) look() (Stage, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stage(), k.turned
}

// Joining is to be called before a session is opened. If that session disappears, others
// wait for its TTL, so instances that run by the deadline of a longer one get no more than
// that either. An error means that no session must be opened.
func (k *Keeper) Joining() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read()
	now := Now()
	bound := Deadline{Boot: k.cfg.Boot, At: now.Add(k.cfg.TTL), Margin: min(k.current.Margin, fleet.ExclusiveMargin(k.cfg.TTL))}
	if k.current.Stage(now) == Lapsed || bound.At >= k.current.At {
		return nil
	}
	if err := k.cfg.File.Write(bound); err != nil {
		return errs.Wrap("deadline.Joining", err)
	}
	k.current = bound
	k.kick()
	return nil
}

// Replacing is to be called before a session that stands is given up for another one. The
// end of the former then ends no instance: the deadline stays as it is until Joined. Starts
// that are under way begin again, since a claim belongs to one session.
func (k *Keeper) Replacing() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = nil
	k.turn()
}

// Joined gives the keeper the node's new session.
func (k *Keeper) Joined(s Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tell() // what has lapsed has: another node may have begun
	k.session = s
	k.renew()
	k.kick()
}

func (k *Keeper) kick() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Run keeps the deadline until ctx ends; then it runs out by itself. Unavailable
// when the system has no alarm to give.
func (k *Keeper) Run(ctx context.Context) error {
	alarm, err := NewAlarm()
	if err != nil {
		return err
	}
	defer alarm.Close()
	steps, err := newSteps()
	if err != nil {
		return err
	}
	defer steps.close()
	for {
		session, renewed, over := k.follow(alarm)
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-renewed:
		case <-over:
			k.lost(session)
		case <-alarm.Rings():
		case <-steps.rings:
		}
	}
}

// follow takes over what the session says, tells what is due and sets the alarm for
// what comes next. The channels belong to the session it returns.
func (k *Keeper) follow(alarm *Alarm) (session Session, renewed, over <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.compare()
	if k.session != nil {
		renewed, over = k.session.Renewed(), k.session.Done() // asked for first, so that nothing is missed
		k.renew()
	}
	k.read()
	k.tell()
	switch k.told {
	case Valid:
		alarm.Set(k.current.StopAt())
	case Stopping:
		alarm.Set(k.current.KillAt())
	case Lapsed: // nothing comes by itself
	}
	return k.session, renewed, over
}

// renew takes over the session's deadline. k.mu is held.
func (k *Keeper) renew() {
	sent, until := k.session.Confirmed(), k.session.Deadline()
	if !k.doubted.IsZero() {
		if !sent.After(k.doubted) {
			k.session.Hurry()
			return
		}
		k.doubted = time.Time{}
		k.turn()
	}
	d := Deadline{Boot: k.cfg.Boot, At: k.moment(sent, until), Margin: fleet.ExclusiveMargin(until.Sub(sent))}
	if d == k.current {
		return
	}
	if err := k.cfg.File.Write(d); err != nil {
		k.cfg.Log.Error("the deadline cannot be written: guards will end exclusive instances", "error", err)
	}
	k.current = d
	if d.Stage(Now()) == Valid && k.told != Valid {
		k.told = Valid
		k.turn()
	}
}

// compare looks for a forward step of the wall clock. The machine may have been frozen with
// its boot clock, and the session may be over though the deadline has not passed. Until
// the session is renewed nothing exclusive starts, and what runs gets a margin. k.mu is held.
func (k *Keeper) compare() {
	ahead := k.wallAhead()
	step := ahead - k.ahead
	k.ahead = ahead
	if step < stepTolerance || k.current.Stage(Now()) == Lapsed {
		return
	}
	k.cfg.Log.Warn("the wall clock was stepped forward, as after a pause of the whole machine: the session is renewed before exclusive instances are trusted", "by", step)
	k.doubted = time.Now()
	k.turn()
	margin := k.current.Margin
	if bound := (Deadline{Boot: k.cfg.Boot, At: Now().Add(margin), Margin: margin / 2}); bound.At < k.current.At {
		k.current = bound
		if err := k.cfg.File.Write(bound); err != nil {
			k.cfg.Log.Error("the deadline cannot be written", "error", err)
		}
	}
	k.kick()
}

func (k *Keeper) turn() {
	close(k.turned)
	k.turned = make(chan struct{})
	for _, end := range k.terms {
		end()
	}
	clear(k.terms)
}

// tell announces a stage that was reached. k.mu is held.
func (k *Keeper) tell() {
	stage := k.current.Stage(Now())
	if stage <= k.told && (!k.silent || stage == Valid) {
		k.silent = false
		return
	}
	k.silent = false
	if k.told == Valid {
		k.turn()
	}
	k.told = stage
	k.cfg.Ending(stage)
}

// lost takes the end of a session. One that ended before its time was revoked, at
// an unknown moment: others may count the instances as lost already. A session that
// Joined has replaced meanwhile changes nothing.
func (k *Keeper) lost(ended Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session != ended {
		return
	}
	k.session = nil
	now := Now()
	if now >= k.current.At {
		return
	}
	k.cfg.Log.Warn("the node's session was revoked by somebody else: exclusive instances are ended")
	k.current = Deadline{Boot: k.cfg.Boot, At: now}
	if err := k.cfg.File.Write(k.current); err != nil {
		k.cfg.Log.Error("the deadline cannot be written", "error", err)
	}
	k.tell()
}

// reading is one look at both clocks, the boot clock first: so it is never ahead.
type reading struct {
	boot Moment
	mono time.Time
}

func (k *Keeper) read() {
	boot := Now()
	k.readings = append(k.readings, reading{boot, time.Now()})
}

// moment is the boot clock's name for a time of the monotonic clock. While the
// machine sleeps only the boot clock goes on, so the two are compared at a moment
// before the keep-alive was sent: what it slept since then makes the deadline
// earlier and never later. k.mu is held.
func (k *Keeper) moment(sent, until time.Time) Moment {
	last := 0
	for i, r := range k.readings {
		if !r.mono.After(sent) {
			last = i
		}
	}
	k.readings = k.readings[last:]
	return k.readings[0].boot.Add(until.Sub(k.readings[0].mono))
}
