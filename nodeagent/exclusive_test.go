package nodeagent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
)

// exclusiveTTL leaves 1.6 seconds between a keep-alive and the beginning of the stop, and 0.8
// for the kill on a busy machine.
const exclusiveTTL = 5 * time.Second

// beat writes the boot clock into a file every few milliseconds, until it is killed.
func beat() int {
	f, err := os.OpenFile("beats", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for range time.Tick(5 * time.Millisecond) {
		if _, err := fmt.Fprintln(f, deadline.Now()); err != nil {
			return 1
		}
	}
	return 0
}

// beating is a plan of a server that beats.
func beating(change func(*fleet.Plan)) fleet.Plan {
	p := basic("exec " + self())
	p.Env = map[string]string{"ORRERY_TEST_MODE": "beat"}
	if change != nil {
		change(&p)
	}
	return p
}

func self() string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return exe
}

func exclusive(p *fleet.Plan) { p.Static, p.OnNodeLoss = true, fleet.NodeLossReplace }

// stubborn makes a server that records the request to end and ignores it.
func stubborn(p *fleet.Plan) {
	p.Command = `trap "echo >asked" TERM; ` + self() + ` & while :; do wait; done`
	p.Stop.GraceSeconds = 60
}

// post is a site with one exclusive instance, whose agents reach the store through a proxy that
// can be cut.
type post struct {
	*site
	wire *storetest.Wire
	one  fleet.InstanceID
	// home is the exclusive instance's directory.
	home string
}

func newPost(t testing.TB) *post {
	s := newSite(t)
	return &post{site: s, wire: s.etcd.Wire(t), one: s.id(1), home: filepath.Join(s.dir, "static", "lobby", "lobby-1")}
}

// over makes an agent in this process reach the store through the proxy.
func (p *post) over(c *nodeagent.Config) {
	p.t.Helper()
	client, err := store.Dial([]string{p.wire.Endpoint()}, store.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = client.Close() })
	c.Store, c.SessionTTL, c.StopInstancesOnExit = client, exclusiveTTL, true
}

// agent runs an agent as a process of its own that reaches the store through the proxy.
func (p *post) agent() (pid int, kill func()) {
	p.t.Helper()
	return p.spawnAt(p.wire.Endpoint(), "TEST_TTL="+exclusiveTTL.String())
}

// run places the exclusive instance and waits until it beats.
func (p *post) run(change func(*fleet.Plan)) fleet.Status {
	p.t.Helper()
	p.place(p.one, 1, beating(func(plan *fleet.Plan) {
		exclusive(plan)
		if change != nil {
			change(plan)
		}
	}), 0)
	st := p.awaitState(p.one, 1, fleet.Online)
	p.after(p.home, 0)
	return st
}

// last is a server's last beat, or 0.
func last(t testing.TB, dir string) deadline.Moment {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "beats"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 2 {
		return 0
	}
	n, err := strconv.ParseInt(lines[len(lines)-2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return deadline.Moment(n)
}

// after waits until a server has beaten after a moment.
func (p *post) after(dir string, m deadline.Moment) {
	p.t.Helper()
	await.That(p.t, "a beat of "+dir, func() string {
		at := last(p.t, dir)
		return await.Unless(at > m, "%v", at)
	})
}

// until is the last deadline that the agent has written.
func (p *post) until() deadline.Deadline {
	p.t.Helper()
	f, err := deadline.Load(filepath.Join(p.dir, "deadline"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	d, err := f.Read()
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// loss receives the moment at which the store has ended the node's session.
type loss chan deadline.Moment

func (l loss) Reset(sessions []store.KeyValue, _ int64) {
	if len(sessions) == 0 {
		l.note()
	}
}

func (l loss) Apply(changes []store.Change, _ int64) {
	for _, ch := range changes {
		if ch.Removed {
			l.note()
		}
	}
}

func (l loss) note() {
	select {
	case l <- deadline.Now():
	default:
	}
}

// watchSession follows the node's session from now on.
func (p *post) watchSession() loss {
	p.t.Helper()
	if _, err := store.Get(p.t.Context(), p.store, keys.NodeSession(node)); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	l, done := make(loss, 1), make(chan struct{})
	go func() {
		defer close(done)
		_ = p.store.Follow(ctx, keys.NodeSession(node).String(), l)
	}()
	p.t.Cleanup(func() { cancel(); <-done })
	return l
}

// ended checks that the exclusive instance was gone before its node's session could expire, and
// when it did expire.
func (p *post) ended(lost loss) {
	p.t.Helper()
	var at deadline.Moment
	select {
	case at = <-lost:
	case <-time.After(await.Patience):
		p.t.Fatal("the session did not expire")
	}
	final, until := last(p.t, p.home), p.until()
	if final >= until.At || until.At > at {
		p.t.Errorf("the last beat was %v before the deadline, which was %v before the session's end", until.At.Sub(final), at.Sub(until.At))
	}
	p.t.Logf("gone %v before the deadline, %v before the session's end", until.At.Sub(final), at.Sub(final))
}

// told waits until the end is reported, and checks that nothing was restarted.
func (p *post) told() {
	p.t.Helper()
	final := last(p.t, p.home)
	st := p.awaitState(p.one, 1, fleet.Stopped)
	if st.Reason != fleet.ReasonSessionExpiring || st.Exit == nil || st.PID != 0 {
		p.t.Errorf("status %+v, exit %+v", st, st.Exit)
	}
	if again := last(p.t, p.home); again != final {
		p.t.Errorf("it was started again by itself: %v after its end", again.Sub(final))
	}
}

// next starts a later generation, as the enforcer would.
func (p *post) next() {
	p.t.Helper()
	p.place(p.one, 2, beating(exclusive), 0)
	p.awaitState(p.one, 2, fleet.Online)
	p.after(p.home, last(p.t, p.home))
}

func TestCutOffExclusiveInstanceEndsBeforeSession(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.start(p.over)
	p.run(stubborn)
	plain := p.id(2)
	before := p.online(plain, beating(nil))
	lost := p.watchSession()
	p.wire.Sever()
	p.ended(lost)
	p.after(filepath.Join(p.dir, "running", string(plain)), deadline.Now())
	if !exists(filepath.Join(p.home, "asked")) {
		t.Error("it was not asked to stop before it was killed")
	}
	p.wire.Mend()
	p.told()
	if st := p.status(plain); st.PID != before.PID || st.State != fleet.Online {
		t.Errorf("the other instance: %+v", st)
	}
	p.next()
}

func TestGuardEndsExclusiveInstanceOfKilledAgent(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	_, kill := p.agent()
	p.run(func(plan *fleet.Plan) { plan.OnCrash = fleet.CrashRestart })
	lost := p.watchSession()
	p.wire.Sever()
	kill()
	p.ended(lost)
	p.wire.Mend()
	p.start(p.over)
	p.told()
	p.next()
}

func TestGuardEndsExclusiveInstanceOfFrozenAgent(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	pid, kill := p.agent()
	p.run(func(plan *fleet.Plan) { plan.OnCrash = fleet.CrashRestart })
	lost := p.watchSession()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.ended(lost)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.told()
	p.next()
	kill()
	p.start(p.over)
}

func TestExclusiveInstanceIsAdoptedWithinDeadline(t *testing.T) {
	t.Parallel()
	const slow = 2 * exclusiveTTL // another process must start and join within it
	p := newPost(t)
	_, kill := p.spawnAt(p.wire.Endpoint(), "TEST_TTL="+slow.String())
	before, stands := p.run(nil), p.guardPID()
	first := p.until()
	kill()
	_, kill = p.spawnAt(p.wire.Endpoint(), "TEST_TTL="+slow.String())
	await.That(t, "the deadline renewed", func() string {
		at := p.until().At
		return await.Unless(at > first.At.Add(slow), "%v later", at.Sub(first.At))
	})
	p.after(p.home, first.At)
	if st := p.status(p.one); st.PID != before.PID || st.State != fleet.Online || !alive(st.PID) {
		t.Errorf("before %+v\nafter  %+v", before, st)
	}
	if now := p.guardPID(); now != stands || !alive(now) {
		t.Errorf("the guard was %d and is %d", stands, now)
	}
	kill()
	p.start(p.over) // which continues with it
}

// guardPID is the pid of the guard that holds the lock.
func (p *post) guardPID() int {
	p.t.Helper()
	var h struct{ PID int }
	b, err := os.ReadFile(filepath.Join(p.dir, "run", string(p.one), "guard"))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil && !os.IsNotExist(err) {
		return 0 // about to be written
	}
	return h.PID
}

func TestKilledGuardIsReplaced(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	_, kill := p.agent()
	before := p.run(nil)
	first := p.guardPID()
	killed(t, first)
	await.That(t, "another guard", func() string {
		now := p.guardPID()
		return await.Unless(now != 0 && now != first && alive(now), "%v", now)
	})
	if st := p.status(p.one); st.PID != before.PID || !alive(before.PID) {
		t.Errorf("status %+v", st)
	}
	lost := p.watchSession()
	kill()
	p.ended(lost)
	p.start(p.over)
	p.told()
}

func TestInstanceEndsWhenGuardsAreKilledRepeatedly(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.start(p.over)
	p.run(nil)
	await.That(t, "its end", func() string {
		if pid := p.guardPID(); pid > 0 && alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		st := p.status(p.one)
		return await.Unless(st.State == fleet.Failed && st.Reason == fleet.ReasonGuardFailed, "%+v", st)
	})
}

func TestExpiredExclusiveInstanceIsKilledFirst(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	_, kill := p.agent()
	pid := p.run(nil).PID
	lost := p.watchSession()
	kill()
	killed(t, p.guardPID()) // so that no process can end it
	<-lost
	p.after(p.home, deadline.Now())
	p.start(p.over)
	st := p.awaitState(p.one, 1, fleet.Stopped)
	if st.Reason != fleet.ReasonSessionExpiring {
		t.Errorf("status %+v", st)
	}
	awaitGone(t, pid)
}

func TestExclusiveInstanceNeedsGuard(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.start(func(c *nodeagent.Config) { c.Guard, c.StopInstancesOnExit = nil, true })
	p.place(p.one, 1, beating(exclusive), 0)
	st := p.awaitState(p.one, 1, fleet.Failed)
	if st.Reason != fleet.ReasonGuardFailed || !strings.Contains(st.Message, "guard") || last(t, p.home) != 0 {
		t.Errorf("status %+v", st)
	}
	p.place(p.id(2), 1, beating(nil), 0)
	p.awaitState(p.id(2), 1, fleet.Online)
}

func TestExclusiveStartIsWithheldAfterSessionEnd(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	begun, let := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "let")
	p.start(func(c *nodeagent.Config) {
		p.over(c)
		slow := fmt.Sprintf(`echo >%s; until [ -e %s ]; do sleep 0.01; done; exec %s "$@"`, begun, let, self())
		c.Guard = append([]string{"/bin/sh", "-c", slow, "sh"}, c.Guard[1:]...)
	})
	p.place(p.one, 1, beating(exclusive), 0)
	await.That(t, "a guard that is slow", func() string { return await.Unless(exists(begun), "no %s", begun) })
	lost := p.watchSession()
	p.wire.Sever()
	<-lost
	if err := os.WriteFile(let, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := p.awaitLocal(p.one, "its end", func(i client.Instance) bool { return i.State.Terminal() })
	if ended.Reason != fleet.ReasonSessionExpiring || !ended.StartedAt.IsZero() || last(t, p.home) != 0 {
		t.Errorf("it was started after all: %+v", ended)
	}
	p.wire.Mend()
	p.awaitState(p.one, 1, fleet.Stopped)
	p.next()
}

func TestCrashedExclusiveInstanceWaitsForStore(t *testing.T) {
	t.Parallel()
	for _, policy := range []fleet.OnCrash{fleet.CrashReplace, fleet.CrashRestart} {
		t.Run(string(policy), func(t *testing.T) {
			p := newPost(t)
			p.start(p.over)
			before := p.run(func(plan *fleet.Plan) { plan.OnCrash = policy })
			plain := p.id(2)
			other := p.online(plain, beating(nil))
			lost := p.watchSession()
			p.wire.Sever()
			killed(t, before.PID)
			killed(t, other.PID)
			<-lost
			final := last(t, p.home)
			p.awaitLocal(plain, "the other one's second run", func(i client.Instance) bool {
				return i.State == fleet.Online && i.PID != other.PID && alive(i.PID)
			})
			if again := last(t, p.home); again != final || again >= p.until().At {
				t.Errorf("a beat %v after the crash's last", again.Sub(final))
			}
			p.wire.Mend()
			st := p.await(p.one, "its end", func(st fleet.Status) bool { return st.State.Terminal() })
			if st.Generation != 1 || last(t, p.home) != final {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func TestRevokedSessionEndsExclusiveInstances(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.start(p.over)
	p.run(nil)
	plain := p.id(2)
	before := p.online(plain, beating(nil))
	p.etcd.RevokeAll(t)
	p.awaitState(p.one, 1, fleet.Stopped)
	p.told()
	if st := p.status(plain); st.PID != before.PID {
		t.Errorf("the other instance: %+v", st)
	}
	p.next()
}

func TestDirectoryOfLaterRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPost(t)
	p.start(p.over)
	p.place(p.one, 2, beating(exclusive), 0)
	p.awaitState(p.one, 2, fleet.Online)
	p.order(p.one, 2, fleet.OrderKill)
	p.awaitState(p.one, 2, fleet.Stopped)
	lock := filepath.Join(p.home, ".orrery-lock")

	b, err := os.ReadFile(lock)
	if err == nil { // another node had it, on the same storage
		uuid, _ := os.ReadFile(filepath.Join(p.dir, "uuid"))
		err = os.WriteFile(lock, []byte(strings.Replace(string(b), strings.TrimSpace(string(uuid)), "another", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	other := p.site.id(3) // placed earlier, with an earlier clock and owner
	p.write(keys.Plan(beating(exclusive).Digest()), fleet.StoredPlan{Plan: beating(exclusive), TouchedAt: time.Now()})
	p.write(keys.Placement(node, other), fleet.Placement{
		Instance: other, Name: "lobby-1", Group: "lobby", Node: node, Generation: 1, Plan: beating(exclusive).Digest(), Epoch: -1,
	})
	st := p.awaitState(other, 1, fleet.Failed)
	for _, name := range []string{string(other), string(p.one), lock} {
		if st.Reason != fleet.ReasonDirectoryTaken || !strings.Contains(st.Message, name) {
			t.Errorf("status %+v does not name %s", st, name)
		}
	}

	if err := os.WriteFile(lock, []byte("what is this"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.place(p.one, 3, beating(exclusive), 0)
	if st := p.awaitState(p.one, 3, fleet.Failed); st.Reason != fleet.ReasonDirectoryTaken || !strings.Contains(st.Message, lock) {
		t.Errorf("status %+v", st)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	p.place(p.one, 4, beating(exclusive), 0)
	p.awaitState(p.one, 4, fleet.Online)
}

func TestMovedExclusiveInstanceIsNotRestarted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(func(c *nodeagent.Config) { c.SessionTTL = time.Minute })
	one := s.id(1)
	plan := basic("echo run >>runs; exit 1")
	exclusive(&plan)
	plan.OnCrash = fleet.CrashRestart
	s.place(one, 1, plan, 0)
	s.await(one, "the pause before its third run", func(st fleet.Status) bool { return st.Restarts == 2 })
	s.remove(keys.Placement(node, one))
	st := s.await(one, "its end", func(st fleet.Status) bool { return st.State.Terminal() })
	if st.State != fleet.Failed || st.Reason != fleet.ReasonNodeLost {
		t.Errorf("status %+v", st)
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, "static", "lobby", "lobby-1", "runs")); string(b) != "run\nrun\n" {
		t.Errorf("runs %q, %v", b, err)
	}
}
