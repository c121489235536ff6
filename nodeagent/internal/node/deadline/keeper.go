package deadline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Session is the part of a session that the keeper needs; store.Session implements it. Its
// times are of the monotonic clock.
type Session interface {
	// Confirmed is when the last confirmed keep-alive was sent. Deadline is one TTL later.
	Confirmed() time.Time
	Deadline() time.Time
	// Renewed is closed when they change, and Done when the session is over.
	Renewed() <-chan struct{}
	Done() <-chan struct{}
	// Hurry makes the session send a keep-alive now.
	Hurry()
}

// Config configures a Keeper. All fields are required.
type Config struct {
	// File receives the deadline. Until the first session the deadline in it stays in force.
	File *File
	// Boot identifies the current boot.
	Boot string
	// TTL is the TTL of the coming sessions. A predecessor may have used another one.
	TTL time.Duration
	// Ending is called when a stage after Valid begins. It must not block.
	Ending func(Stage)
	Log    *slog.Logger
}

// Keeper follows the node's sessions. Create it with NewKeeper and call Run once.
type Keeper struct {
	cfg     Config
	changed chan struct{}
	// wallAhead returns how far the wall clock is ahead of the boot clock.
	wallAhead func() time.Duration

	mu      sync.Mutex
	current Deadline
	// announced is the stage that was announced last. unannounced is true until the first announcement.
	announced   Stage
	unannounced bool
	session     Session
	// validChanged is closed and replaced when announced becomes Valid or stops being Valid.
	validChanged chan struct{}
	// contexts cancel the contexts of Within.
	contexts    map[int]context.CancelFunc
	lastContext int
	// ahead is the last result of wallAhead. steppedAt is when a forward step was found; zero
	// once a later keep-alive is confirmed.
	ahead     time.Duration
	steppedAt time.Time
	// readings are readings of both clocks, oldest first.
	readings []reading
}

// NewKeeper returns a keeper that continues with the deadline in the file.
func NewKeeper(cfg Config) *Keeper {
	k := &Keeper{cfg: cfg, wallAhead: wallAhead, ahead: wallAhead(), changed: make(chan struct{}, 1), validChanged: make(chan struct{}), announced: Lapsed, unannounced: true, contexts: map[int]context.CancelFunc{}}
	if d, err := cfg.File.Read(); err == nil && d.Boot == cfg.Boot {
		k.current, k.announced = d, d.Stage(Now())
	}
	k.readClocks()
	return k
}

// Stage is the current stage.
func (k *Keeper) Stage() Stage {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stage()
}

// stage is the current stage. After a clock step it is not Valid. k.mu is held.
func (k *Keeper) stage() Stage {
	k.detectStep()
	stage := k.current.Stage(Now())
	if stage == Valid && !k.steppedAt.IsZero() {
		return Stopping
	}
	return stage
}

// Await returns nil when exclusive instances may start, or ctx's error.
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

// Within returns a context that ends when exclusive instances may no longer start, even if a
// later session allows it again. The caller cancels it.
func (k *Keeper) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stage() != Valid {
		cancel()
		return ctx, cancel
	}
	k.lastContext++
	term := k.lastContext
	k.contexts[term] = cancel
	return ctx, func() {
		cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.contexts, term)
	}
}

// Holds reports whether a context of Within has been valid until now. It reads the clock, so
// it does not depend on a timer that is late.
func (k *Keeper) Holds(within context.Context) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stage() == Valid && within.Err() == nil
}

// look returns the stage, and a channel that is closed when Valid begins or ends.
func (k *Keeper) look() (Stage, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stage(), k.validChanged
}

// Joining must be called before a session is opened. If the new session disappears, other
// nodes wait only for its TTL. Joining therefore shortens a later deadline of a longer session
// to that TTL. If it returns an error, no session may be opened.
func (k *Keeper) Joining() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readClocks()
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

// Replacing must be called before a live session is replaced. The end of the old session then
// does not end instances: the deadline stays unchanged until Joined. Pending starts begin
// again, because a claim belongs to one session.
func (k *Keeper) Replacing() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = nil
	k.endContexts()
}

// Joined sets the node's new session.
func (k *Keeper) Joined(s Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.announce() // an expired deadline stays expired: another node may run the instances
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

// Run maintains the deadline until ctx ends. After that it expires by itself. Unavailable if
// no file descriptor is left for a timer.
func (k *Keeper) Run(ctx context.Context) error {
	alarm, err := NewAlarm()
	if err != nil {
		return err
	}
	defer alarm.Close()
	steps, err := newStepAlarm()
	if err != nil {
		return err
	}
	defer steps.Close()
	for {
		session, renewed, over := k.update(alarm)
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-renewed:
		case <-over:
			k.sessionEnded(session)
		case <-alarm.Rings():
		case <-steps.Rings():
		}
	}
}

// update applies the session's deadline, announces a new stage and sets the alarm. The
// channels belong to the session that it returns.
func (k *Keeper) update(alarm *Alarm) (session Session, renewed, over <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.detectStep()
	if k.session != nil {
		renewed, over = k.session.Renewed(), k.session.Done() // before renew, so that no change is missed
		k.renew()
	}
	k.readClocks()
	k.announce()
	switch k.announced {
	case Valid:
		alarm.Set(k.current.StopAt())
	case Stopping:
		alarm.Set(k.current.KillAt())
	case Lapsed: // only a new session changes it
	}
	return k.session, renewed, over
}

// renew applies the session's deadline. k.mu is held.
func (k *Keeper) renew() {
	sent, until := k.session.Confirmed(), k.session.Deadline()
	if !k.steppedAt.IsZero() {
		if !sent.After(k.steppedAt) {
			k.session.Hurry()
			return
		}
		k.steppedAt = time.Time{}
		k.endContexts()
	}
	d := Deadline{Boot: k.cfg.Boot, At: k.moment(sent, until), Margin: fleet.ExclusiveMargin(until.Sub(sent))}
	if d == k.current {
		return
	}
	if err := k.cfg.File.Write(d); err != nil {
		k.cfg.Log.Error("cannot write the deadline: guards will end exclusive instances", "error", err)
	}
	k.current = d
	if d.Stage(Now()) == Valid && k.announced != Valid {
		k.announced = Valid
		k.endContexts()
	}
}

// detectStep detects a forward step of the wall clock. The machine may have been paused along
// with its boot clock, and the session may be over before the deadline. Until the session is
// renewed no exclusive instance starts, and running ones get a margin. k.mu is held.
func (k *Keeper) detectStep() {
	ahead := k.wallAhead()
	step := ahead - k.ahead
	k.ahead = ahead
	if step < stepTolerance || k.current.Stage(Now()) == Lapsed {
		return
	}
	k.cfg.Log.Warn("the wall clock was stepped forward, as after a pause of the machine: the session is renewed before exclusive instances may start", "by", step)
	k.steppedAt = time.Now()
	k.endContexts()
	margin := k.current.Margin
	if bound := (Deadline{Boot: k.cfg.Boot, At: Now().Add(margin), Margin: margin / 2}); bound.At < k.current.At {
		k.current = bound
		if err := k.cfg.File.Write(bound); err != nil {
			k.cfg.Log.Error("cannot write the deadline", "error", err)
		}
	}
	k.kick()
}

func (k *Keeper) endContexts() {
	close(k.validChanged)
	k.validChanged = make(chan struct{})
	for _, end := range k.contexts {
		end()
	}
	clear(k.contexts)
}

// announce announces a stage that has begun. k.mu is held.
func (k *Keeper) announce() {
	stage := k.current.Stage(Now())
	if stage <= k.announced && (!k.unannounced || stage == Valid) {
		k.unannounced = false
		return
	}
	k.unannounced = false
	if k.announced == Valid {
		k.endContexts()
	}
	k.announced = stage
	k.cfg.Ending(stage)
}

// sessionEnded handles the end of a session. If it ended early, it was revoked at an unknown time, and
// the control plane may already consider the instances lost. A session that Joined has
// replaced is ignored.
func (k *Keeper) sessionEnded(ended Session) {
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
	k.cfg.Log.Warn("the node's session was revoked: exclusive instances are ended")
	k.current = Deadline{Boot: k.cfg.Boot, At: now}
	if err := k.cfg.File.Write(k.current); err != nil {
		k.cfg.Log.Error("cannot write the deadline", "error", err)
	}
	k.announce()
}

// reading is a reading of both clocks. The boot clock is read first, so it is never ahead.
type reading struct {
	boot Moment
	mono time.Time
}

func (k *Keeper) readClocks() {
	boot := Now()
	k.readings = append(k.readings, reading{boot, time.Now()})
}

// moment converts a time of the monotonic clock to the boot clock. Only the boot clock
// continues while the machine is suspended, so both are compared at a time before the
// keep-alive was sent: a suspension since then makes the deadline earlier, never later. k.mu
// is held.
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
