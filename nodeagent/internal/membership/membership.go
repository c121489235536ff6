// Package membership makes the agent part of the fleet: it writes the node's
// record and keeps the session that everything else the agent writes is fenced by.
//
//	joining ──record and session written──▶ member ──session lost──▶ joining
//
// Invariants:
//   - A node id belongs to one data directory. Another one's record is never
//     overwritten: joining ends with Conflict.
//   - Nothing waits for it: instances are adopted and watched before the store was
//     ever reached.
//   - A session of the same directory on the same running host is taken over at
//     once, since the lock on the directory proves that whoever opened it is dead. A
//     copy of the directory proves nothing: its session is waited for, and while it is
//     renewed joining ends with Conflict.
package membership

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// attemptTimeout bounds one attempt to join or to write.
	attemptTimeout = 5 * time.Second
	maxPause       = 2 * time.Second
	// spaceEvery is the longest pause between two looks whether etcd has space again.
	spaceEvery = 10 * time.Second
	// recordTries is how often a write of the own record is tried against others.
	recordTries = 5
)

// Config is what a member needs. All but TTL, Wrote, Found, InUse and Now are required.
type Config struct {
	Store *store.Client
	// Record is the node's record without its history: JoinedAt, BlockedPorts.
	Record fleet.Node
	// Holder is the lock the agent holds; see fleet.NodeSession.
	Holder string
	// TTL is how long the session outlives the agent. 0 means store.DefaultTTL.
	TTL time.Duration
	// Wrote is called when the node's record was written at a revision, in place of the
	// one of a revision before, 0 for none. Nil: nobody wants to know.
	Wrote func(before, rev int64)
	// Found is called after it at a join, with the revision of the node's report, 0 for none.
	// Nil: nobody wants to know.
	Found func(report int64)
	// Joining is called before a session is opened, and before a predecessor's is revoked
	// for it. After an error neither is done.
	Joining func() error
	// Replacing is called before a session that stands is given up for another one.
	Replacing func()
	// Joined is called with each new session.
	Joined func(*store.Session)
	// InUse returns the ports that instances of the node have. Nil: none has any.
	InUse func() map[int]bool
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Member is the node's membership. Make it with New.
type Member struct {
	cfg    Config
	doubts chan struct{}

	// other is a session of somebody else, seen at firstSeen; owned by Run.
	other     int64
	firstSeen time.Time
	// resumed is true while the session is the predecessor's; owned by Run.
	resumed bool
	// blocked says that a port was blocked.
	blocked chan struct{}

	mu     sync.Mutex
	record fleet.Node
	// runtimes are those that the record is to have.
	runtimes []fleet.NodeRuntime
	session  *store.Session
	// joined is when session began, complained when a failed join was last told.
	joined, complained time.Time
	cluster, problem   string
}

// New makes a member that joins when it is run.
func New(cfg Config) *Member {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.InUse == nil {
		cfg.InUse = func() map[int]bool { return nil }
	}
	return &Member{cfg: cfg, record: cfg.Record, runtimes: cfg.Record.Runtimes, doubts: make(chan struct{}, 1), blocked: make(chan struct{}, 1)}
}

// Run joins, and joins again whenever the session was lost, until ctx ends. It
// returns an error only when the node id belongs to another data directory. The
// session is left as it is: see Leave.
func (m *Member) Run(ctx context.Context) error {
	next := 50 * time.Millisecond
	for ctx.Err() == nil {
		s, cluster, err := m.join(ctx)
		if errs.Is(err, errs.Conflict) {
			return err
		}
		if err != nil {
			if ctx.Err() == nil {
				m.failed(err, time.Now())
			}
			pause.Jittered(ctx, next)
			next = min(2*next, maxPause)
			continue
		}
		next = 50 * time.Millisecond
		m.entered(s, cluster, time.Now())
		m.cfg.Joined(s)
		m.hold(ctx, s)
	}
	return nil
}

// hold returns when the session is over or ctx ends.
func (m *Member) hold(ctx context.Context, s *store.Session) {
	var looking sync.WaitGroup
	defer looking.Wait()
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	looking.Go(func() { m.watchPorts(held, s.Fence()) })
	if m.resumed {
		m.resumed = false
		looking.Go(func() { m.awaitSpace(held, s) })
	}
	for {
		select {
		case <-s.Done():
			m.cfg.Log.Warn("session lost: instances run on, joining again")
			return
		case <-ctx.Done():
			return
		case <-m.doubts:
			if !m.stands(ctx, s) {
				s.Abandon()
			}
		}
	}
}

// stands reports whether the session's key is there; also true when that cannot be told.
func (m *Member) stands(ctx context.Context, s *store.Session) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	have, err := store.Get(ctx, m.cfg.Store, store.NodeSessionKey(m.cfg.Record.ID))
	if err != nil {
		return !errs.Is(err, errs.NotFound)
	}
	return have.CreateRev == s.Fence().Epoch()
}

// Leave gives the session back at once, so that others know: for an agent that has ended
// all its instances. Otherwise the session is kept for a successor on the same data
// directory and expires by itself.
func (m *Member) Leave(ctx context.Context, giveBack bool) {
	m.mu.Lock()
	s := m.session
	m.session = nil
	m.mu.Unlock()
	switch {
	case s == nil:
	case giveBack:
		if err := m.release(ctx, s); err != nil {
			m.cfg.Log.Warn("the instances are not released: others wait until their session could not have lived any longer", "error", err)
		}
		s.Close(ctx)
	default:
		s.Abandon()
	}
}

// release removes the session's key and notes in the same transaction that no instance runs.
func (m *Member) release(ctx context.Context, s *store.Session) error {
	key, session := store.NodeKey(m.cfg.Record.ID), store.NodeSessionKey(m.cfg.Record.ID)
	record, err := store.Get(ctx, m.cfg.Store, key)
	if err != nil {
		return errs.Wrap("membership.release", err)
	}
	before := record.ModRev
	record.Released = true
	rev, err := m.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{s.Fence()},
		Writes: []store.Write{store.Remove(session, s.Fence().Epoch()), store.Replace(key, record, before)},
	})
	if err == nil {
		m.wrote(record, before, rev)
	}
	return errs.Wrap("membership.release", err)
}

// Fence proves the current session. ok is false while there is none.
func (m *Member) Fence() (f store.Fence, ok bool) {
	m.mu.Lock()
	s := m.session
	m.mu.Unlock()
	if s == nil {
		return f, false
	}
	select {
	case <-s.Done():
		return f, false
	default:
		return s.Fence(), true
	}
}

// Doubt has it looked at whether the session's key still stands: a keep-alive
// renews a lease though its keys were deleted. Where it does not, the session is
// over and another is opened.
func (m *Member) Doubt() {
	select {
	case m.doubts <- struct{}{}:
	default:
	}
}

// Node is the node's record as it was last written.
func (m *Member) Node() fleet.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record
}

// join checks that the store is one this build knows, writes the node's record and
// opens a session. cluster identifies the store.
func (m *Member) join(ctx context.Context) (s *store.Session, cluster string, err error) {
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	meta, err := m.cfg.Store.Join(attempt, m.cfg.Now())
	if err != nil {
		return nil, "", errs.Wrap("membership.join", err)
	}
	wishes, err := m.wishes(attempt)
	if err != nil {
		return nil, "", err
	}
	if err := m.barred(attempt); err != nil {
		return nil, "", err
	}
	predecessor, err := m.predecessor(attempt)
	if err != nil {
		return nil, "", err
	}
	if predecessor != 0 {
		switch err := m.cfg.Store.CanGrant(attempt); {
		case errs.Is(err, errs.Exhausted):
			s, err := m.resume(attempt, predecessor)
			return s, meta.ClusterID, err
		case err != nil: // the predecessor's session is not given up before it is known that another is granted
			return nil, "", errs.Wrap("membership.join", err)
		}
	}
	record, before, err := m.next(attempt)
	if err != nil {
		return nil, "", err
	}
	report, err := store.Get(attempt, m.cfg.Store, store.ReportKey(record.ID))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, "", errs.Wrap("membership.join", err)
	}
	if err := m.cfg.Joining(); err != nil {
		return nil, "", err
	}
	id := record.ID
	if predecessor != 0 {
		if err := store.RevokeSession(attempt, m.cfg.Store, store.NodeSessionKey(id), predecessor); err != nil {
			return nil, "", errs.Wrap("membership.join", err)
		}
	}
	session := fleet.NodeSession{Node: id, DataUUID: record.DataUUID, Holder: m.cfg.Holder, StartedAt: m.cfg.Now().UTC()}
	s, err = store.OpenSession(attempt, m.cfg.Store, store.NodeSessionKey(id), session, m.cfg.TTL, false, func(granted time.Duration) store.Txn {
		record.SessionTTLSeconds = int(granted / time.Second)
		return store.Txn{
			Guards: []store.Guard{store.Unchanged(store.NodeDesiredKey(id), wishes), store.Missing(store.RevokedNodeKey(id))},
			Writes: []store.Write{store.Replace(store.NodeKey(id), record, before)},
		}
	})
	if errs.Is(err, errs.Conflict) { // it is looked at anew
		err = errs.New(errs.Unavailable, "the records of node %s changed while it joined", id)
	}
	if err != nil {
		return nil, "", errs.Wrap("membership.join", err)
	}
	m.wrote(record, before, s.Fence().Epoch())
	if m.cfg.Found != nil {
		m.cfg.Found(report.ModRev)
	}
	return s, meta.ClusterID, nil
}

// resume keeps the predecessor's session alive while etcd has no space for another one,
// until awaitSpace ends it. The node's record stays as the predecessor wrote it.
func (m *Member) resume(ctx context.Context, epoch int64) (*store.Session, error) {
	s, err := store.ResumeSession(ctx, m.cfg.Store, store.NodeSessionKey(m.cfg.Record.ID), epoch)
	if err != nil {
		return nil, errs.Wrap("membership.resume", err)
	}
	m.cfg.Log.Warn("etcd has no space and grants no session: the agent continues the one of the agent before it; compact and defragment etcd, or raise its quota, then disarm its alarm")
	m.resumed = true
	return s, nil
}

// awaitSpace abandons a session that was resumed once etcd grants leases again: Run then
// joins as usual.
func (m *Member) awaitSpace(ctx context.Context, s *store.Session) {
	for pause.Jittered(ctx, spaceEvery) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := m.cfg.Store.CanGrant(attempt)
		cancel()
		if err == nil {
			m.cfg.Log.Info("etcd has space again: the agent opens a session of its own")
			m.cfg.Replacing()
			s.Abandon()
			return
		}
	}
}

// wishes is the revision of what operators want of the node, 0 when that is nothing;
// the session is opened only while it is the same. It is an error while a deletion of
// the node is under way: after it, the node joins like a new one.
func (m *Member) wishes(ctx context.Context) (rev int64, err error) {
	desired, err := store.Get(ctx, m.cfg.Store, store.NodeDesiredKey(m.cfg.Record.ID))
	switch {
	case errs.Is(err, errs.NotFound):
		return 0, nil
	case err != nil:
		return 0, errs.Wrap("membership.wishes", err)
	case desired.Deleted:
		return 0, errs.New(errs.Unavailable, "node %s is being deleted: its records have to go first", m.cfg.Record.ID)
	}
	return desired.ModRev, nil
}

// Barred reports whether the node is revoked, also where that cannot be told: gateways refuse
// what its instances say of themselves then.
func (m *Member) Barred(ctx context.Context) bool {
	return m.barred(ctx) != nil
}

// barred is an error while the node is barred from joining: until a gateway has removed the
// record. The clock of a host that is not trusted does not decide when that is over.
func (m *Member) barred(ctx context.Context) error {
	revoked, err := store.Get(ctx, m.cfg.Store, store.RevokedNodeKey(m.cfg.Record.ID))
	switch {
	case errs.Is(err, errs.NotFound):
		return nil
	case err != nil:
		return errs.Wrap("membership.barred", err)
	}
	return errs.New(errs.Unavailable, "node %s was revoked by %s and may not join before %s: an operator lets it with POST /api/v1/nodes/%s/unrevoke-cert",
		m.cfg.Record.ID, revoked.By, revoked.Until.Format(time.RFC3339), m.cfg.Record.ID)
}

// predecessor is the epoch of the node's session where that is a predecessor's of this
// very agent; 0 when there is none. It looks before anything is written, so that the
// record of another one that lives is left as it is. Unavailable while it may be about
// to expire, Conflict when somebody renews it.
func (m *Member) predecessor(ctx context.Context) (epoch int64, err error) {
	id := m.cfg.Record.ID
	s, err := store.Get(ctx, m.cfg.Store, store.NodeSessionKey(id))
	switch {
	case errs.Is(err, errs.NotFound):
		return 0, nil
	case err != nil:
		return 0, errs.Wrap("membership.predecessor", err)
	case s.DataUUID == m.cfg.Record.DataUUID && (s.Holder == m.cfg.Holder || s.Holder == ""):
		return s.CreateRev, nil
	}
	record, err := store.Get(ctx, m.cfg.Store, store.NodeKey(id))
	if err == nil && record.DataUUID != m.cfg.Record.DataUUID {
		return 0, foreign(id, record)
	}
	if m.other != s.CreateRev {
		m.other, m.firstSeen = s.CreateRev, time.Now()
	}
	if time.Since(m.firstSeen) < 2*cmp.Or(m.cfg.TTL, store.DefaultTTL) {
		return 0, errs.New(errs.Unavailable, "node %s has a session of another boot or another directory: waiting for its end", id)
	}
	return 0, alive(s, record)
}

// alive words that somebody else keeps the node's session.
func alive(s fleet.NodeSession, record fleet.Node) error {
	return &errs.Error{Op: "membership.join", Kind: errs.Conflict, Field: "node", Message: fmt.Sprintf(
		"another agent, on a copy of this data directory, lives as node %s (host %s, since %s): stop it, or give this one an empty directory and an id of its own; instances that run are left alone",
		s.Node, record.Host.Hostname, s.StartedAt.Format(time.RFC3339))}
}

// next is the node's record as configured, with what is kept of the one that stands
// there, and the revision of that one, 0 for none. Conflict when it is another directory's.
func (m *Member) next(ctx context.Context) (record fleet.Node, before int64, err error) {
	old, err := store.Get(ctx, m.cfg.Store, store.NodeKey(m.cfg.Record.ID))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return record, 0, errs.Wrap("membership.next", err)
	}
	now := m.cfg.Now().UTC()
	record = m.cfg.Record
	record.JoinedAt, record.Runtimes = now, m.wanted()
	if old.ModRev == 0 {
		return record, 0, nil
	}
	if old.DataUUID != record.DataUUID {
		return record, 0, foreign(record.ID, old)
	}
	record.JoinedAt, record.SessionTTLSeconds = old.JoinedAt, old.SessionTTLSeconds
	record.BlockedPorts = slices.DeleteFunc(slices.Clone(old.BlockedPorts), func(b fleet.BlockedPort) bool { return b.Until.Before(now) })
	return record, old.ModRev, nil
}

// wrote notes that the node's record stands at a revision, in place of the one before.
func (m *Member) wrote(record fleet.Node, before, rev int64) {
	if m.cfg.Wrote != nil {
		m.cfg.Wrote(before, rev)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record = record
}

// update writes a change of the node's record while the fence stands.
func (m *Member) update(ctx context.Context, fence store.Fence, change func(*fleet.Node)) error {
	var err error
	for range recordTries {
		record, before, failed := m.next(ctx)
		if failed != nil {
			return failed
		}
		change(&record)
		var rev int64
		rev, err = m.cfg.Store.Commit(ctx, store.Txn{
			Fences: []store.Fence{fence}, Writes: []store.Write{store.Replace(store.NodeKey(record.ID), record, before)},
		})
		if err == nil {
			m.wrote(record, before, rev)
			return nil
		}
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) {
			return errs.Wrap("membership.update", err)
		}
	}
	return errs.As(errs.Unavailable, "membership.update", err)
}

func foreign(id fleet.NodeID, old fleet.Node) error {
	return &errs.Error{Op: "membership.join", Kind: errs.Conflict, Field: "node", Message: fmt.Sprintf(
		"the node id %s belongs to another data directory (host %s, joined %s): choose another id. Only if that node is gone for good, delete it first, which gives up the data of its static instances. This lists them: curl -sS -X DELETE -H \"Authorization: Bearer $TOKEN\" \"$API/api/v1/nodes/%s?dryRun=true\"",
		id, old.Host.Hostname, old.JoinedAt.Format(time.RFC3339), id)}
}

// Offer has the node's record say these runtimes: it is written now if the node has a
// session, else when it joins. A write that fails is made up for by the next call.
func (m *Member) Offer(ctx context.Context, runtimes []fleet.NodeRuntime) {
	m.mu.Lock()
	m.runtimes = runtimes
	same := slices.Equal(m.record.Runtimes, runtimes)
	m.mu.Unlock()
	fence, ok := m.Fence()
	if same || !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := m.update(ctx, fence, func(*fleet.Node) {}); err != nil {
		m.cfg.Log.Warn("the runtimes that the node offers are not in its record yet", "error", err)
	}
}

func (m *Member) wanted() []fleet.NodeRuntime {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runtimes
}
