// Package membership makes the agent a member of the fleet: it writes the node's record and
// keeps the session that fences all other writes of the agent.
//
//	joining ──record and session written──▶ member ──session lost──▶ joining
//
// Invariants:
//   - A node id belongs to one data directory. A record of another directory is never
//     overwritten: joining ends with Conflict.
//   - Instances do not wait for it: they are adopted and watched before the store is reached.
//   - A session of the same directory on the same boot is taken over at once, because the
//     lock on the directory proves that its agent has ended. The session of a copy of the
//     directory is waited for, and if it is renewed, joining ends with Conflict.
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
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// attemptTimeout bounds one attempt to join or to write.
	attemptTimeout = 5 * time.Second
	maxPause       = 2 * time.Second
	// spaceCheckPause is the longest pause between two checks whether etcd has space again.
	spaceCheckPause = 10 * time.Second
	// recordTries bounds the attempts to write the node's record against concurrent writers.
	recordTries = 5
)

// Config configures a Member. All fields but TTL, RecordWritten, ReportFound, InUse and Now are required.
type Config struct {
	Store *store.Client
	// Record is the node's record without JoinedAt and BlockedPorts.
	Record fleet.Node
	// Holder identifies the agent's lock; see fleet.NodeSession.
	Holder string
	// TTL is how long the session survives without keep-alives. 0 means store.DefaultTTL.
	TTL time.Duration
	// RecordWritten is called after the node's record was written at revision rev and replaced the
	// one of revision before, 0 for none. It may be nil.
	RecordWritten func(before, rev int64)
	// ReportFound is called after RecordWritten at a join, with the revision of the node's report, 0 for
	// none. It may be nil.
	ReportFound func(report int64)
	// Joining is called before a session is opened and before a predecessor's is revoked. If
	// it returns an error, neither happens.
	Joining func() error
	// Replacing is called before a live session is replaced.
	Replacing func()
	// Joined is called with each new session.
	Joined func(*store.Session)
	// InUse returns the ports of the node's instances. It may be nil.
	InUse func() map[int]bool
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Member is the node's membership. Create it with New.
type Member struct {
	cfg    Config
	checks chan struct{}

	// otherSession is the session of another agent, first seen at firstSeen; owned by Run.
	otherSession int64
	firstSeen    time.Time
	// resumed is true while the session is the predecessor's; owned by Run.
	resumed bool
	// blocked is signalled when a port was blocked.
	blocked chan struct{}

	mu     sync.Mutex
	record fleet.Node
	// runtimes are those that the record has to contain.
	runtimes []fleet.NodeRuntime
	session  *store.Session
	// joined is when session began, and failureLoggedAt when a failure to join was last logged.
	joined, failureLoggedAt time.Time
	cluster, problem        string
}

// New returns a member. Run joins.
func New(cfg Config) *Member {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.InUse == nil {
		cfg.InUse = func() map[int]bool { return nil }
	}
	return &Member{cfg: cfg, record: cfg.Record, runtimes: cfg.Record.Runtimes, checks: make(chan struct{}, 1), blocked: make(chan struct{}, 1)}
}

// Run joins, and joins again after the session is lost, until ctx ends. It returns an error
// only if the node id belongs to another data directory. It does not close the session; see
// Leave.
func (m *Member) Run(ctx context.Context) error {
	next := 50 * time.Millisecond
	for ctx.Err() == nil {
		s, cluster, err := m.join(ctx)
		if errs.Is(err, errs.Conflict) {
			return err
		}
		if err != nil {
			if ctx.Err() == nil {
				m.recordFailure(err, time.Now())
			}
			pause.Jittered(ctx, next)
			next = min(2*next, maxPause)
			continue
		}
		next = 50 * time.Millisecond
		m.recordJoin(s, cluster, time.Now())
		m.cfg.Joined(s)
		m.keepSession(ctx, s)
	}
	return nil
}

// keepSession returns when the session is over or ctx ends.
func (m *Member) keepSession(ctx context.Context, s *store.Session) {
	var background sync.WaitGroup
	defer background.Wait()
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	background.Go(func() { m.watchPorts(held, s.Fence()) })
	if m.resumed {
		m.resumed = false
		background.Go(func() { m.awaitSpace(held, s) })
	}
	for {
		select {
		case <-s.Done():
			m.cfg.Log.Warn("session lost: instances keep running, joining again")
			return
		case <-ctx.Done():
			return
		case <-m.checks:
			if !m.sessionExists(ctx, s) {
				s.Abandon()
			}
		}
	}
}

// sessionExists reports whether the session's key exists. It returns true if the key cannot be read.
func (m *Member) sessionExists(ctx context.Context, s *store.Session) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	have, err := store.Get(ctx, m.cfg.Store, keys.NodeSession(m.cfg.Record.ID))
	if err != nil {
		return !errs.Is(err, errs.NotFound)
	}
	return have.CreateRev == s.Fence().Epoch()
}

// Leave ends the membership. With release it releases the session at once, for an agent whose
// instances have all ended. Otherwise the session stays for a successor on the same data
// directory and expires by itself.
func (m *Member) Leave(ctx context.Context, release bool) {
	m.mu.Lock()
	s := m.session
	m.session = nil
	m.mu.Unlock()
	switch {
	case s == nil:
	case release:
		if err := m.release(ctx, s); err != nil {
			m.cfg.Log.Warn("cannot release the session: the control plane waits until it has expired", "error", err)
		}
		s.Close(ctx)
	default:
		s.Abandon()
	}
}

// release removes the session's key and records in the same transaction that no instance runs.
func (m *Member) release(ctx context.Context, s *store.Session) error {
	key, session := keys.Node(m.cfg.Record.ID), keys.NodeSession(m.cfg.Record.ID)
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

// Fence proves the current session. ok is false without one.
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

// CheckSession makes the member check whether the session's key exists: keep-alives renew a
// lease even if its keys were deleted. If the key is gone, a new session is opened.
func (m *Member) CheckSession() {
	select {
	case m.checks <- struct{}{}:
	default:
	}
}

// Node is the node's record as last written.
func (m *Member) Node() fleet.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record
}

// join checks that this program supports the store, writes the node's record and opens a
// session. cluster identifies the store.
func (m *Member) join(ctx context.Context) (s *store.Session, cluster string, err error) {
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	meta, err := m.cfg.Store.Join(attempt, m.cfg.Now())
	if err != nil {
		return nil, "", errs.Wrap("membership.join", err)
	}
	desired, err := m.desiredRevision(attempt)
	if err != nil {
		return nil, "", err
	}
	if err := m.checkRevoked(attempt); err != nil {
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
		case err != nil: // the predecessor's session is kept until another one can be granted
			return nil, "", errs.Wrap("membership.join", err)
		}
	}
	record, before, err := m.nextRecord(attempt)
	if err != nil {
		return nil, "", err
	}
	report, err := store.Get(attempt, m.cfg.Store, keys.Report(record.ID))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, "", errs.Wrap("membership.join", err)
	}
	if err := m.cfg.Joining(); err != nil {
		return nil, "", err
	}
	id := record.ID
	if predecessor != 0 {
		if err := store.RevokeSession(attempt, m.cfg.Store, keys.NodeSession(id), predecessor); err != nil {
			return nil, "", errs.Wrap("membership.join", err)
		}
	}
	session := fleet.NodeSession{Node: id, DataUUID: record.DataUUID, Holder: m.cfg.Holder, StartedAt: m.cfg.Now().UTC()}
	s, err = store.OpenSession(attempt, m.cfg.Store, keys.NodeSession(id), session, m.cfg.TTL, false, func(granted time.Duration) store.Txn {
		record.SessionTTLSeconds = int(granted / time.Second)
		return store.Txn{
			Guards: []store.Guard{store.Unchanged(keys.NodeDesired(id), desired), store.Missing(keys.RevokedNode(id))},
			Writes: []store.Write{store.Replace(keys.Node(id), record, before)},
		}
	})
	if errs.Is(err, errs.Conflict) { // the next attempt reads the records again
		err = errs.New(errs.Unavailable, "the records of node %s changed while it joined", id)
	}
	if err != nil {
		return nil, "", errs.Wrap("membership.join", err)
	}
	m.wrote(record, before, s.Fence().Epoch())
	if m.cfg.ReportFound != nil {
		m.cfg.ReportFound(report.ModRev)
	}
	return s, meta.ClusterID, nil
}

// resume keeps the predecessor's session alive while etcd has no space for another one, until
// awaitSpace ends it. The node's record is not updated.
func (m *Member) resume(ctx context.Context, epoch int64) (*store.Session, error) {
	s, err := store.ResumeSession(ctx, m.cfg.Store, keys.NodeSession(m.cfg.Record.ID), epoch)
	if err != nil {
		return nil, errs.Wrap("membership.resume", err)
	}
	m.cfg.Log.Warn("etcd has no space and grants no session: the agent continues its predecessor's session; compact and defragment etcd, or raise its quota, then disarm its alarm")
	m.resumed = true
	return s, nil
}

// awaitSpace abandons a resumed session once etcd grants leases again. Run then joins as usual.
func (m *Member) awaitSpace(ctx context.Context, s *store.Session) {
	for pause.Jittered(ctx, spaceCheckPause) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := m.cfg.Store.CanGrant(attempt)
		cancel()
		if err == nil {
			m.cfg.Log.Info("etcd has space again: the agent opens its own session")
			m.cfg.Replacing()
			s.Abandon()
			return
		}
	}
}

// desiredRevision returns the revision of the operators' settings for the node, 0 if there are none.
// The session is opened only if it is unchanged. While the node is being deleted it returns an
// error; after the deletion the node joins like a new one.
func (m *Member) desiredRevision(ctx context.Context) (rev int64, err error) {
	desired, err := store.Get(ctx, m.cfg.Store, keys.NodeDesired(m.cfg.Record.ID))
	switch {
	case errs.Is(err, errs.NotFound):
		return 0, nil
	case err != nil:
		return 0, errs.Wrap("membership.desiredRevision", err)
	case desired.Deleted:
		return 0, errs.New(errs.Unavailable, "node %s is being deleted: it joins after its records are removed", m.cfg.Record.ID)
	}
	return desired.ModRev, nil
}

// Revoked reports whether the node is revoked or its revocation cannot be read. Gateways refuse
// the heartbeats of its instances then.
func (m *Member) Revoked(ctx context.Context) bool {
	return m.checkRevoked(ctx) != nil
}

// checkRevoked returns an error while the node is revoked, until a gateway removes the revocation. An
// untrusted host's own clock does not end it.
func (m *Member) checkRevoked(ctx context.Context) error {
	revoked, err := store.Get(ctx, m.cfg.Store, keys.RevokedNode(m.cfg.Record.ID))
	switch {
	case errs.Is(err, errs.NotFound):
		return nil
	case err != nil:
		return errs.Wrap("membership.checkRevoked", err)
	}
	return errs.New(errs.Unavailable, "node %s was revoked by %s and may not join before %s: an operator allows it earlier: orrery unrevoke node %s",
		m.cfg.Record.ID, revoked.By, revoked.Until.Format(time.RFC3339), m.cfg.Record.ID)
}

// predecessor returns the epoch of the node's session if this directory's last agent opened
// it, and 0 if there is no session. It is called before anything is written, so that the
// record of another agent stays unchanged. Unavailable while another agent's session may be
// about to expire, Conflict if it is renewed.
func (m *Member) predecessor(ctx context.Context) (epoch int64, err error) {
	id := m.cfg.Record.ID
	s, err := store.Get(ctx, m.cfg.Store, keys.NodeSession(id))
	switch {
	case errs.Is(err, errs.NotFound):
		return 0, nil
	case err != nil:
		return 0, errs.Wrap("membership.predecessor", err)
	case s.DataUUID == m.cfg.Record.DataUUID && (s.Holder == m.cfg.Holder || s.Holder == ""):
		return s.CreateRev, nil
	}
	record, err := store.Get(ctx, m.cfg.Store, keys.Node(id))
	if err == nil && record.DataUUID != m.cfg.Record.DataUUID {
		return 0, foreignID(id, record)
	}
	if m.otherSession != s.CreateRev {
		m.otherSession, m.firstSeen = s.CreateRev, time.Now()
	}
	if time.Since(m.firstSeen) < 2*cmp.Or(m.cfg.TTL, store.DefaultTTL) {
		return 0, errs.New(errs.Unavailable, "node %s has a session of another boot or another directory: waiting until it ends", id)
	}
	return 0, otherAgent(s, record)
}

// otherAgent is the error for a session that another agent renews.
func otherAgent(s fleet.NodeSession, record fleet.Node) error {
	return &errs.Error{Op: "membership.join", Kind: errs.Conflict, Field: "node", Message: fmt.Sprintf(
		"%s is run by another agent, on a copy of this data directory (host %s, since %s): stop it, or use an empty directory and another node id for this one; running instances are left alone",
		s.Node, record.Host.Hostname, s.StartedAt.Format(time.RFC3339))}
}

// nextRecord returns the node's record to write, which keeps some fields of the stored one, and the
// revision of the stored one, 0 without one. Conflict if the stored one is of another directory.
func (m *Member) nextRecord(ctx context.Context) (record fleet.Node, before int64, err error) {
	old, err := store.Get(ctx, m.cfg.Store, keys.Node(m.cfg.Record.ID))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return record, 0, errs.Wrap("membership.nextRecord", err)
	}
	now := m.cfg.Now().UTC()
	record = m.cfg.Record
	record.JoinedAt, record.Runtimes = now, m.wantedRuntimes()
	if old.ModRev == 0 {
		return record, 0, nil
	}
	if old.DataUUID != record.DataUUID {
		return record, 0, foreignID(record.ID, old)
	}
	record.JoinedAt, record.SessionTTLSeconds = old.JoinedAt, old.SessionTTLSeconds
	record.BlockedPorts = slices.DeleteFunc(slices.Clone(old.BlockedPorts), func(b fleet.BlockedPort) bool { return b.Until.Before(now) })
	return record, old.ModRev, nil
}

// wrote records that the node's record was written at rev and replaced the one of before.
func (m *Member) wrote(record fleet.Node, before, rev int64) {
	if m.cfg.RecordWritten != nil {
		m.cfg.RecordWritten(before, rev)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record = record
}

// update changes the node's record under a fence.
func (m *Member) update(ctx context.Context, fence store.Fence, change func(*fleet.Node)) error {
	var err error
	for range recordTries {
		record, before, failed := m.nextRecord(ctx)
		if failed != nil {
			return failed
		}
		change(&record)
		var rev int64
		rev, err = m.cfg.Store.Commit(ctx, store.Txn{
			Fences: []store.Fence{fence}, Writes: []store.Write{store.Replace(keys.Node(record.ID), record, before)},
		})
		if err == nil {
			m.wrote(record, before, rev)
			return nil
		}
		if !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) {
			return errs.Wrap("membership.update", err)
		}
	}
	return errs.WrapAs(errs.Unavailable, "membership.update", err)
}

func foreignID(id fleet.NodeID, old fleet.Node) error {
	return &errs.Error{Op: "membership.join", Kind: errs.Conflict, Field: "node", Message: fmt.Sprintf(
		"%s belongs to another data directory (host %s, joined %s): choose another id. Only if that node is gone for good, delete it first, which gives up the data of its static instances. To list them: orrery delete node %s --dry-run",
		id, old.Host.Hostname, old.JoinedAt.Format(time.RFC3339), id)}
}

// SetRuntimes sets the runtimes in the node's record. It writes them now if the node has a session,
// and otherwise when it joins. The next call repeats a write that failed.
func (m *Member) SetRuntimes(ctx context.Context, runtimes []fleet.NodeRuntime) {
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
		m.cfg.Log.Warn("cannot write the offered runtimes to the node's record", "error", err)
	}
}

func (m *Member) wantedRuntimes() []fleet.NodeRuntime {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runtimes
}
