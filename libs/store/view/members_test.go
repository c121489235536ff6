package view_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// groups returns the groups of a snapshot in the format of storetest.Truth.
func groups(s *view.Snapshot) map[string]int64 {
	out := map[string]int64{}
	for name, g := range s.Groups.All() {
		out[keys.Group(name).String()] = g.ModRev
	}
	return out
}

func revisions(state map[string]string) map[string]int64 {
	out := map[string]int64{}
	for key, text := range state {
		var rev int64
		_, _ = fmt.Sscan(text, &rev)
		out[key] = rev
	}
	return out
}

// churn changes groups in etcd continuously until it is stopped.
func churn(t *testing.T, cli *clientv3.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			attempt, release := context.WithTimeout(ctx, time.Second)
			key := keys.Group(fleet.GroupName(fmt.Sprint("g", i%17))).String()
			if i%5 == 0 {
				_, _ = cli.Delete(attempt, key)
			} else {
				_, _ = cli.Put(attempt, key, fmt.Sprintf(`{"name":"g%d","revision":%d}`, i%17, i))
			}
			release()
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func TestEverySnapshotIsTheStateAtItsRevision(t *testing.T) {
	etcd := storetest.StartCluster(t, 3)
	c := etcd.Client(t)
	truth := storetest.NewTruth(t, c, keys.Groups().String())
	v, l := start(t, etcd.Client(t))
	writer, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	stop := churn(t, writer)
	goOn := func() {
		if _, err := v.WaitRev(bounded(t), v.Snapshot().Rev+30); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		goOn()
		etcd.MoveLeader(t, i)
		goOn()
		dead := etcd.Leader(t)
		etcd.Kill(dead)
		goOn()
		truth.Extend(t, c)
		etcd.CompactBefore(t, truth.Now())
		etcd.Restart(t, dead)
	}
	goOn()
	stop()
	truth.Extend(t, c)
	if _, err := v.WaitRev(bounded(t), truth.Now()); err != nil {
		t.Fatal(err)
	}
	heard := l.all()
	truth.Extend(t, c) // a write that timed out may have happened since
	last := int64(0)
	for _, b := range heard {
		if b.After.Rev <= last {
			t.Fatalf("revision %d after %d", b.After.Rev, last)
		}
		last = b.After.Rev
		if got, want := groups(b.After), revisions(truth.At(last)); !maps.Equal(got, want) {
			t.Fatalf("at %d the snapshot has\n%v\nwant\n%v", last, got, want)
		}
	}
	if last < 100 {
		t.Errorf("only %d revisions", last)
	}
}

func (l *log) all() []view.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.batches)
}

func TestWaitRevReachesRevisionsOutsideTheView(t *testing.T) {
	etcd := storetest.Start(t)
	v, _ := start(t, etcd.Client(t))
	for range 3 {
		resp, err := etcd.Raw().Put(t.Context(), "/somebody/else", "x")
		if err != nil {
			t.Fatal(err)
		}
		if s, err := v.WaitRev(bounded(t), resp.Header.Revision); err != nil || s.Rev < resp.Header.Revision {
			t.Fatalf("at %d, waited for %d: %v", s.Rev, resp.Header.Revision, err)
		}
	}
}

func TestViewFollowsRestoredEtcd(t *testing.T) {
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	group := func(name fleet.GroupName, revision int64) store.Write {
		return store.Create(keys.Group(name), fleet.Group{Name: name, Revision: revision})
	}
	commit(t, c, group("kept", 1))
	etcd.Stop()
	backup := etcd.Backup(t)
	etcd.Restart(t)
	aside := storetest.Start(t) // with another history
	aside.Stop()
	aside.Restore(t, backup)
	aside.Restart(t)
	if _, err := aside.Raw().Put(t.Context(), keys.Group("same").String(), `{"name":"same","revision":2}`); err != nil {
		t.Fatal(err)
	}
	aside.Stop()
	v, l := start(t, c)
	commit(t, c, group("same", 1)) // in the other history, this revision has another value
	rev := commit(t, c, group("lost", 1))
	if _, err := v.WaitRev(bounded(t), rev); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { _, err := v.WaitRev(bounded(t), rev+1000); waiting <- err }()

	etcd.Stop()
	etcd.Restore(t, aside.Backup(t))
	etcd.Restart(t)
	if err := <-waiting; !errs.Is(err, errs.Unavailable) {
		t.Errorf("who waited for a revision of the lost past: %v", err)
	}
	s := v.Snapshot()
	same, ok := s.Groups.Get("same")
	if _, lost := s.Groups.Get("lost"); lost || !ok || same.Revision != 2 || s.Rev >= rev {
		t.Errorf("at %d after %d: lost %v, same %+v", s.Rev, rev, lost, same)
	}
	told := map[string]string{}
	for _, b := range l.all() {
		if b.Rewound {
			for _, ch := range b.Changes {
				told[ch.Key[0]] = fmt.Sprintf("%d->%d", revision(ch.Before), revision(ch.After))
			}
		}
	}
	if want := map[string]string{"kept": "1->1", "same": "1->2", "lost": "1->0"}; !maps.Equal(told, want) {
		t.Errorf("listeners heard %v, want %v", told, want)
	}
}
