package events_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func created(rev int64, group string) string { return fmt.Sprintf("%d GROUP_CREATED %s", rev, group) }

func TestEveryMutationYieldsItsEventWithTheRevisionAsID(t *testing.T) {
	r := newReplica(t, storetest.Start(t))
	s := r.open("")
	id := fleet.InstanceID("abc123")
	g, intent := keys.Group("lobby"), fleet.Intent{ID: id, Name: "lobby-1", Group: "lobby", Generation: 1, Desired: fleet.DesiredRunning}
	steps := []struct {
		write store.Write
		want  []events.Type
	}{
		{store.Create(g, fleet.Group{Name: "lobby"}), []events.Type{events.GroupCreated}},
		{store.Create(keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"}), []events.Type{events.NodeConnected}},
		{store.Create(keys.TemplateHead(content.TemplateRef{Group: "default", Name: "x"}), content.TemplateHead{Digest: "d"}), []events.Type{events.TemplateUpdated}},
		{store.Create(keys.Intent(id), intent), []events.Type{events.InstanceStateChanged}},
		{store.Create(keys.Placement("n1", id), fleet.Placement{Instance: id, Node: "n1", Generation: 1}), []events.Type{events.InstanceStateChanged}},
		{store.Create(keys.Status(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Online}), []events.Type{events.InstanceStateChanged, events.GroupAggregatesUpdated}},
		{store.Create(keys.NodeDesired("n1"), fleet.NodeDesired{Node: "n1", Cordoned: true}), []events.Type{events.NodeCordonChanged}},
		{store.Create(keys.Maintenance(), cluster.Maintenance{}), []events.Type{events.MaintenanceUpdated}},
		{store.Create(keys.Deployment("lobby", 1), deployment.Deployment{Group: "lobby", Number: 1}), []events.Type{events.DeploymentCreated}},
		{store.Create(keys.DeploymentProgress("lobby", 1), deployment.Progress{State: deployment.Completed}), []events.Type{events.DeploymentCompleted}},
		{store.Create(keys.CrashLoop("lobby"), crashloop.Loop{Group: "lobby", Crashes: 3}), []events.Type{events.GroupCrashLoop}},
		{store.Create(keys.Scaling("lobby"), scaling.Decision{Group: "lobby", From: 1, To: 2}), []events.Type{events.GroupScaled}},
	}
	for _, step := range steps {
		rev := r.commit(step.write)
		for n, typ := range step.want {
			want := strconv.FormatInt(rev, 10)
			if len(step.want) > 1 {
				want += "-" + strconv.Itoa(n+1)
			}
			f := s.next()
			if f.id != want || f.field(t, "type") != string(typ) || f.field(t, "sequence") != float64(rev) {
				t.Errorf("after revision %d came %+v, want %s %s", rev, f, want, typ)
			}
		}
	}
}

func TestAnyReplicaResumesWithExactlyTheMissedEvents(t *testing.T) {
	etcd := storetest.Start(t)
	first := newReplica(t, etcd)
	live := first.open("")
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("g%02d", i)
		want = append(want, created(first.createGroup(fleet.GroupName(name)), name))
	}
	id := fleet.InstanceID("abc123")
	rev := first.commit( // one revision, several events
		store.Create(keys.Group("two"), fleet.Group{Name: "two"}),
		store.Create(keys.Group("three"), fleet.Group{Name: "three"}),
		store.Create(keys.Intent(id), fleet.Intent{ID: id, Name: "two-1", Group: "two", Generation: 1, Desired: fleet.DesiredRunning}))
	want = append(want, fmt.Sprintf("%d-1 GROUP_CREATED two", rev), fmt.Sprintf("%d-2 GROUP_CREATED three", rev),
		fmt.Sprintf("%d-3 INSTANCE_STATE_CHANGED <nil>", rev))
	want = append(want, created(first.createGroup("last"), "last"))
	same(t, "live", live.take(len(want)), want)

	late := newReplica(t, etcd) // its log begins after all of this
	for _, r := range []*replica{first, late} {
		for _, i := range []int{len(want) - 2, len(want) - 3, len(want) - 4, 0, 10, len(want) - 1} {
			s := r.open("", "Last-Event-ID", idOf(want[i]))
			rest := want[i+1:]
			same(t, "after "+want[i], s.take(len(rest)), rest)
			s.cancel()
		}
		s := r.open("?lastSequence=" + idOf(want[5]))
		same(t, "by query", s.take(3), want[6:9])
		s.cancel()
		s = r.open("?lastSequence=1", "Last-Event-ID", idOf(want[len(want)-2]))
		same(t, "the header wins", s.take(1), want[len(want)-1:])
		s.cancel()
	}

	// Replayed and live events are one sequence without gaps.
	s := late.open("", "Last-Event-ID", idOf(want[18]))
	more := created(late.createGroup("more"), "more")
	same(t, "resumed and live", s.take(len(want)-19+1), append(want[19:len(want):len(want)], more))
}

func idOf(line string) string { return strings.Fields(line)[0] }

func TestAFilterHidesEventsAndKeepsTheirIDs(t *testing.T) {
	r := newReplica(t, storetest.Start(t), func(c *events.Config) { c.KeepAlive = 20 * time.Millisecond })
	byType, byGroup := r.open("?types=group_deleted,GROUP_UPDATED"), r.open("?group=b")
	a := r.createGroup("a")
	b := r.createGroup("b")
	gone := r.commit(store.Replace(keys.Group("a"), fleet.Group{Name: "a", Deleting: true}, a))
	same(t, "by type", byType.take(1), []string{fmt.Sprintf("%d GROUP_DELETED a", gone)})
	same(t, "by group", byGroup.take(1), []string{created(b, "b")})

	for { // hidden events advance the ID for reconnecting
		f, err := byGroup.read()
		if err != nil {
			t.Fatal(err)
		}
		if f.comment == "keep-alive" && f.id == strconv.FormatInt(gone, 10) {
			return
		}
	}
}

func TestAStreamThatCountsHasNoGapsAndResumesByItsIDs(t *testing.T) {
	etcd := storetest.Start(t)
	r := newReplica(t, etcd)
	connect := func(r *replica, header ...string) *stream {
		resp, cancel := r.request("?numbering=connection", header...)
		s := &stream{t: t, resp: resp, in: bufio.NewReader(resp.Body), cancel: cancel}
		if f := s.next(); f.event != "connected" || f.field(t, "latestSequence") != 0. {
			t.Fatalf("the first frame is %+v", f)
		}
		return s
	}
	counted := func(s *stream, n int) frame {
		t.Helper()
		f := s.next()
		if f.field(t, "sequence") != float64(n) {
			t.Errorf("the event number %d is %+v", n, f)
		}
		return f
	}
	s, other := connect(r), r.open("")
	r.createGroup("a")
	rev := r.commit( // one revision with two events, after one without any
		store.Create(keys.Group("b"), fleet.Group{Name: "b"}), store.Create(keys.Group("c"), fleet.Group{Name: "c"}))
	counted(s, 1)
	counted(s, 2)
	if f := counted(s, 3); f.id != fmt.Sprintf("%d-2", rev) {
		t.Errorf("its id is %q", f.id)
	}
	for n := range 3 {
		if f := other.next(); n > 0 && f.field(t, "sequence") != float64(rev) {
			t.Errorf("by revision: %+v", f)
		}
	}
	r.log.Publish(events.Event{Type: "OWN:ROUND_OVER", Fields: events.Fields{}})
	if f := counted(s, 4); f.id != "" {
		t.Errorf("a live event: %+v", f)
	}
	if f := other.next(); f.field(t, "sequence") != nil {
		t.Errorf("a live event by revision: %+v", f)
	}
	r.createGroup("d")
	last := counted(s, 5).id
	s.cancel()

	missed := r.createGroup("e")
	for _, at := range []*replica{r, newReplica(t, etcd)} { // also from etcd's history
		s = connect(at, "Last-Event-ID", fmt.Sprintf("%d-1", rev))
		for n := 1; n <= 2; n++ {
			counted(s, n)
		}
		if f := counted(s, 3); f.id != strconv.FormatInt(missed, 10) {
			t.Errorf("the third is %+v", f)
		}
		s.cancel()
	}
	s = connect(r, "Last-Event-ID", strconv.FormatInt(1<<40, 10))
	f := counted(s, 1)
	if f.field(t, "type") != "RESYNC_REQUIRED" || f.field(t, "lastSequence") != 0. || f.field(t, "earliestSequence") != 1. || f.field(t, "latestSequence") != 1. {
		t.Errorf("a position that cannot be resumed: %+v", f)
	}
	r.createGroup("f")
	counted(s, 2)

	for query, field := range map[string]string{
		"?numbering=connection&lastSequence=" + last: "lastSequence", "?numbering=stream": "numbering", "?numbering=Connection": "numbering",
	} {
		resp, _ := r.request(query)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), field) {
			t.Errorf("%s: %s %s", query, resp.Status, body)
		}
	}
	if f := r.open("?numbering=revision&lastSequence=" + strconv.FormatInt(rev, 10)).next(); f.field(t, "groupName") != "d" {
		t.Errorf("numbered by revision, it resumes at %+v", f)
	}
}

func TestATypeThatNoEventCanHaveIsRefused(t *testing.T) {
	r := newReplica(t, storetest.Start(t))
	for query, status := range map[string]int{
		"?types=%00": 400, "?types=GROUP_DELETED,a%20b": 400, "?types=" + strings.Repeat("x", 65): 400, "?types=group_deleted,,chat:Line": 200,
	} {
		if resp, _ := r.request(query); resp.StatusCode != status {
			t.Errorf("%s: %s, want %d", query, resp.Status, status)
		}
	}
}

func TestASilentStreamIsKeptAlive(t *testing.T) {
	r := newReplica(t, storetest.Start(t), func(c *events.Config) { c.KeepAlive = 10 * time.Millisecond })
	s := r.open("")
	for range 3 {
		if f, err := s.read(); err != nil || f.comment != "keep-alive" || f.data != "" {
			t.Fatalf("%+v, %v", f, err)
		}
	}
}

func TestAPositionThatCannotBeResumedGetsOneResync(t *testing.T) {
	etcd := storetest.Start(t)
	old := newReplica(t, etcd)
	first := old.createGroup("a")
	old.createGroup("b")
	etcd.Compact(t)
	last := old.createGroup("c")
	r := newReplica(t, etcd)
	for name, open := range map[string]func() *stream{
		"older than what etcd keeps":       func() *stream { return r.open("", "Last-Event-ID", strconv.FormatInt(first, 10)) },
		"newer than anything":              func() *stream { return r.open("", "Last-Event-ID", "1000000") },
		"an id of another system":          func() *stream { return r.open("", "Last-Event-ID", "01J0-foreign") },
		"an id of another cluster by name": func() *stream { return r.open("?clusterId=c2&lastSequence=" + strconv.FormatInt(last, 10)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			defer s.cancel()
			f := s.next()
			if f.event != "message" || f.field(t, "type") != "RESYNC_REQUIRED" {
				t.Fatalf("the first event is %+v", f)
			}
			for _, field := range []string{"lastSequence", "earliestSequence", "latestSequence", "timestamp"} {
				if f.field(t, field) == nil {
					t.Errorf("%s is missing in %s", field, f.data)
				}
			}
			group := fmt.Sprintf("g%d", time.Now().UnixNano()%1e9)
			rev := r.createGroup(fleet.GroupName(group))
			same(t, "afterwards", s.take(1), []string{created(rev, group)})
		})
	}
	t.Run("the replica that remembers needs none", func(t *testing.T) {
		s := old.open("", "Last-Event-ID", strconv.FormatInt(first, 10))
		same(t, "missed", s.take(2), []string{created(first+1, "b"), created(last, "c")})
	})
}

func TestARelistTellsClientsThatTheyMissedSomething(t *testing.T) {
	etcd := storetest.Start(t)
	r := newReplica(t, etcd)
	s := r.open("")
	a := r.createGroup("a")
	same(t, "before", s.take(1), []string{created(a, "a")})
	var rev int64
	for range 2 { // revisions without changes in the view
		resp, err := etcd.Raw().Put(t.Context(), "/foreign", "x")
		if err != nil {
			t.Fatal(err)
		}
		rev = resp.Header.Revision
	}
	etcd.Compact(t)
	after := *r.view.Snapshot()
	after.Rev = rev
	r.log.OnBatch(view.Batch{Before: r.view.Snapshot(), After: &after, Relisted: true})
	if f := s.next(); f.field(t, "type") != "RESYNC_REQUIRED" || f.id != strconv.FormatInt(rev, 10) {
		t.Errorf("after the relist came %+v", f)
	}
}

func TestARestoredEtcdTellsClientsThatTheirPastIsLost(t *testing.T) {
	etcd := storetest.Start(t)
	r := newReplica(t, etcd)
	s := r.open("")
	for _, name := range []fleet.GroupName{"a", "b", "c"} {
		r.createGroup(name)
	}
	s.take(3)
	restored := *r.view.Snapshot() // as from a backup before the last two
	restored.Rev -= 2
	r.log.OnBatch(view.Batch{Before: r.view.Snapshot(), After: &restored, Relisted: true, Rewound: true})
	if f := s.next(); f.field(t, "type") != "RESYNC_REQUIRED" || f.id != strconv.FormatInt(restored.Rev, 10) {
		t.Errorf("after the restore came %+v", f)
	}
	next := restored
	next.Rev++
	made := &fleet.Group{Name: "d"}
	made.SetRev(next.Rev, next.Rev)
	r.log.OnBatch(view.Batch{Before: &restored, After: &next, Changes: []view.Change{{
		Kind: view.KindGroup, Rev: next.Rev, Key: []string{"d"}, After: made,
	}}})
	same(t, "afterwards, under an id that was had before", s.take(1), []string{created(next.Rev, "d")})
}

func TestAClientThatFallsBehindIsCutAndHarmsNobody(t *testing.T) {
	etcd := storetest.Start(t)
	r := newReplica(t, etcd, func(c *events.Config) { c.Backlog = 500 })
	slow, quick := r.open(""), r.open("")
	first := r.createGroup("first")
	same(t, "slow", slow.take(1), []string{created(first, "first")})
	same(t, "quick", quick.take(1), []string{created(first, "first")})

	// Fed directly, as fast as the quick client follows.
	const total = 20_000
	var (
		wg   sync.WaitGroup
		read = make(chan struct{}, 200)
		gone = make(chan struct{})
	)
	wg.Go(func() {
		for i := range total {
			f, err := quick.read()
			if want := strconv.FormatInt(first+int64(i)+1, 10); err != nil || f.id != want {
				t.Errorf("the quick client read %+v, %v; want id %s", f, err, want)
				close(gone)
				return
			}
			<-read
		}
	})
	empty := view.New(nil, nil).Snapshot()
	for i := range total {
		rev := first + int64(i) + 1
		after := *empty
		after.Rev = rev
		r.log.OnBatch(view.Batch{Before: empty, After: &after, Changes: []view.Change{{
			Kind: view.KindGroup, Rev: rev, Key: []string{strings.Repeat("g", 500)}, After: &fleet.Group{},
		}}})
		select {
		case read <- struct{}{}:
		case <-gone:
			t.FailNow()
		}
	}
	wg.Wait()
	var last string
	for {
		f, err := slow.read()
		if err != nil {
			t.Fatalf("the stream ended after %s without a reason: %v", last, err)
		}
		if f.event == "error" {
			if !strings.Contains(f.data, "Last-Event-ID "+last) {
				t.Errorf("cut after %s with %s", last, f.data)
			}
			break
		}
		last = f.id
	}
	if _, err := slow.read(); err == nil {
		t.Error("the stream goes on after the cut")
	}
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	r := newReplica(t, storetest.Start(t), func(c *events.Config) { c.MaxClients = 1 })
	s := r.open("")
	resp, _ := r.request("")
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the second stream: %s", resp.Status)
	}
	s.cancel()
	await.That(t, "the freed place given away", func() string {
		resp, cancel := r.request("")
		cancel()
		return await.Unless(resp.StatusCode == http.StatusOK, "%s", resp.Status)
	})
}

func TestClosedStreamsEnd(t *testing.T) {
	r := newReplica(t, storetest.Start(t))
	s := r.open("")
	r.streams.Close()
	if f, err := s.read(); err == nil {
		t.Errorf("after Close came %+v", f)
	}
	if resp, _ := r.request(""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new stream: %s", resp.Status)
	}
}

func (r *replica) ticket(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/ticket", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ann")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Ticket           string
		ExpiresInSeconds int
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != http.StatusOK || body.ExpiresInSeconds != 30 {
		t.Fatalf("%s %+v %v", resp.Status, body, err)
	}
	return body.Ticket
}

func TestATicketOpensOneStreamOnceOnAnyReplica(t *testing.T) {
	etcd := storetest.Start(t)
	a, b := newReplica(t, etcd), newReplica(t, etcd)
	ticket := a.ticket(t)
	b.open("?ticket=" + ticket)
	for name, query := range map[string]string{"used": ticket, "invented": strings.Repeat("A", 32), "not even one": "x", "empty": ""} {
		resp, _ := a.request("?ticket=" + query)
		var body struct{ Error struct{ Code string } }
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != http.StatusUnauthorized || body.Error.Code != "UNAUTHORIZED" {
			t.Errorf("%s: %s %+v %v", name, resp.Status, body, err)
		}
	}
	resp, _ := a.request("", "Authorization", "none")
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without anything: %s", resp.Status)
	}
}

func TestATicketIsLookedAtOnceItsReplicaKnowsWhatItWasIssuedOn(t *testing.T) {
	var asked []int64
	behind := errs.New(errs.Unavailable, "not yet")
	c := storetest.New(t)
	tickets := events.NewTickets(c, 0, func(_ context.Context, rev int64) error {
		asked = append(asked, rev)
		if len(asked) == 1 {
			return behind
		}
		return nil
	})
	ticket, err := tickets.Issue(t.Context(), account.Ticket{Credential: account.Credential{User: "ann"}, Stream: "events"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tickets.Redeem(t.Context(), ticket, "events"); !errors.Is(err, behind) {
		t.Errorf("a replica that is behind: %v", err)
	}
	if _, err := tickets.Redeem(t.Context(), ticket, "events"); err != nil {
		t.Errorf("what it was not ready for used the ticket up: %v", err)
	}
	if rev, err := c.Revision(t.Context()); err != nil || len(asked) != 2 || asked[0] == 0 || asked[1] != asked[0] || asked[0] > rev {
		t.Errorf("it waited for %v, at revision %d, %v", asked, rev, err)
	}
}

func TestOfManyUsesOfOneTicketOneWins(t *testing.T) {
	tickets := events.NewTickets(storetest.New(t), 0, atOnce)
	ticket, err := tickets.Issue(t.Context(), account.Ticket{Credential: account.Credential{User: "ann"}, Stream: "events"})
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		won int
	)
	for range 10 {
		wg.Go(func() {
			ticket, err := tickets.Redeem(t.Context(), ticket, "events")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && ticket.User == "ann":
				won++
			case !errs.Is(err, errs.Unauthenticated):
				t.Errorf("%+v, %v", ticket, err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d uses won", won)
	}
}

func TestATicketIsGoodForItsStreamAndItsTimeOnly(t *testing.T) {
	c := storetest.New(t)
	tickets := events.NewTickets(c, time.Second, atOnce)
	foreign, err := tickets.Issue(t.Context(), account.Ticket{Credential: account.Credential{User: "ann"}, Stream: "console:lobby-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tickets.Redeem(t.Context(), foreign, "events"); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("for another stream: %v", err)
	}
	late, err := tickets.Issue(t.Context(), account.Ticket{Credential: account.Credential{User: "ann"}, Stream: "events"})
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the end of all tickets", func() string {
		left, _, err := store.List(t.Context(), c, keys.Tickets())
		if err != nil {
			t.Fatal(err)
		}
		return await.Unless(len(left) == 0, "%d of them", len(left))
	})
	if _, err := tickets.Redeem(t.Context(), late, "events"); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("an expired one: %v", err)
	}
}
