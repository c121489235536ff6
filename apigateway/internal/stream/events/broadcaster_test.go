package events

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// began returns a log after its first list.
func began() *Log {
	l := NewLog(0)
	at := *view.New(nil, nil).Snapshot()
	at.Rev = 1
	l.OnBatch(view.Batch{Before: &at, After: &at, Relisted: true})
	return l
}

// goes sends the next revision to the log. It creates a group or, with an empty name, has no event.
func (l *Log) goes(group string) {
	before := *view.New(nil, nil).Snapshot()
	before.Rev = l.Head()
	after := before
	after.Rev++
	b := view.Batch{Before: &before, After: &after}
	if group != "" {
		b.Changes = []view.Change{{Kind: view.KindGroup, Rev: after.Rev, Key: []string{group}, After: &fleet.Group{}}}
	}
	l.OnBatch(b)
}

// answers returns how many of some clients were woken, and lets them wait again.
func (l *Log) answers(subscribers []*subscriber) (woken int) {
	for _, e := range subscribers {
		select {
		case <-e.wake:
			woken++
		default:
		}
		l.await(e, l.now())
	}
	return woken
}

// many returns n waiting clients without a filter.
func (l *Log) many(n int) []*subscriber {
	subscribers := make([]*subscriber, n)
	for n := range subscribers {
		subscribers[n], _ = l.subscribe(everything)
	}
	l.answers(subscribers)
	return subscribers
}

func everything(Event) bool { return true }

func TestOneClientIsWokenAtOnceAndOfABurstManyAreWokenInRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for clients, atMost := range map[int]int{1: 100, 1000: 5, 2000: 3} {
			l := began()
			subscribers := l.many(clients)
			calls := 0
			for n := range 100 { // in 100 ms
				l.goes(fmt.Sprint("g", n))
				calls += l.answers(subscribers)
				<-time.After(time.Millisecond)
			}
			if calls < clients*(atMost-1) || calls > clients*atMost {
				t.Errorf("%d clients were woken %.2f times each for 100 events, want %d", clients, float64(calls)/float64(clients), atMost)
			}
			<-time.After(time.Second)
			l.answers(subscribers)
			l.goes("after-a-silence")
			if woken := l.answers(subscribers); woken != clients {
				t.Errorf("after a silence %d of %d clients were woken at once", woken, clients)
			}
			<-time.After(time.Second) // no round is pending
		}
	})
}

func TestNoRoundStartsWhileMostOfTheLastOneHaveNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := began()
		subscribers := l.many(100)
		quick, slow := subscribers[:50], subscribers[50:]
		l.goes("a") // wakes all; the slow ones do not finish
		if woken := l.answers(quick); woken != len(quick) {
			t.Fatalf("%d were woken", woken)
		}
		<-time.After(roundLimit / 2)
		l.goes("b")
		if woken := l.answers(quick); woken != 0 {
			t.Errorf("%d were woken again before the others had written", woken)
		}
		<-time.After(roundLimit)
		if woken := l.answers(quick); woken != len(quick) {
			t.Errorf("%d were woken when the others were waited for long enough, want %d", woken, len(quick))
		}
		<-time.After(roundLimit)
		for _, e := range slow[:45] { // few are left
			l.broadcaster.endWait(e)
			l.await(e, l.now())
		}
		subscribers = append(quick, slow[:45]...)
		l.answers(subscribers)
		for _, name := range []string{"c", "d", "e"} {
			<-time.After(time.Duration(len(subscribers)) * wakeCost)
			l.goes(name)
			if woken := l.answers(subscribers); woken != len(subscribers) {
				t.Errorf("%d were woken at once while few had not written, want %d", woken, len(subscribers))
			}
		}
	})
}

func TestARoundOfVeryManyIsWaitedForAsLongAsItMayCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 4000
		l := began()
		subscribers := l.many(clients)
		l.goes("a") // wakes all; half of them do not finish
		quick := subscribers[:clients/2]
		if woken := l.answers(quick); woken != len(quick) {
			t.Fatalf("%d were woken", woken)
		}
		l.goes("b")
		<-time.After(roundLimit)
		synctest.Wait()
		if woken := l.answers(quick); woken != 0 {
			t.Errorf("%d were woken again before the round had cost what it may", woken)
		}
		<-time.After(clients*wakeCost - roundLimit)
		synctest.Wait()
		if woken := l.answers(quick); woken != len(quick) {
			t.Errorf("%d were woken when it had, want %d", woken, len(quick))
		}
	})
}

func TestWhoComesBackLastFindsTheRoundThatWakesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := began()
		subscribers := l.many(20)
		l.goes("a")
		known := l.now()
		<-time.After(time.Duration(len(subscribers)) * wakeCost)
		l.goes("b") // due as soon as all but ten have finished
		for n, e := range subscribers[:10] {
			<-e.wake
			if waits := l.await(e, known); waits != (n < 9) {
				t.Errorf("client %d waits: %v", n, waits)
			}
		}
		for n, e := range subscribers[:10] {
			if woken := len(e.wake) == 1; woken != (n < 9) {
				t.Errorf("client %d is woken: %v", n, woken)
			}
		}
		if !l.await(subscribers[9], l.now()) {
			t.Error("the last one does not wait for more")
		}
	})
}

func TestManyWhoReadAtTheirOwnPaceGetEverythingInOrder(t *testing.T) {
	const clients, all = 200, 2000
	l := began()
	var wg sync.WaitGroup
	for n := range clients {
		wants := func(e Event) bool { return n%2 == 0 || strings.HasSuffix(fmt.Sprint(e.Fields["groupName"]), "0") }
		e, leave := l.subscribe(wants)
		c := client{at: cursor{pos: Position{Rev: 1}}, filter: filter{scope: Scope{Event: wants}}}
		wg.Go(func() {
			defer leave()
			for next := int64(2); next < all+2; {
				p := l.after(c.at, 16)
				for _, e := range p.events {
					if !wants(e) {
						continue
					}
					if e.At.Rev < next || n%2 == 0 && e.At.Rev != next {
						t.Errorf("client %d got %v, want %d", n, e.At, next)
						return
					}
					next = e.At.Rev + 1
				}
				if len(p.events) > 0 {
					c.at.pos = p.events[len(p.events)-1].At
				}
				if p.behind == 0 && next < all+2 && l.await(e, p.mark) {
					select {
					case <-e.wake:
					case <-time.After(await.Patience):
						t.Errorf("client %d waits for %d, the log is at %d", n, next, l.Head())
						return
					}
					c.skip(l.broadcaster.endWait(e))
				}
			}
		})
	}
	for n := range all { // the last revision is 2001, of the group that all want
		l.goes(fmt.Sprint("g", n+1))
		if n%7 == 0 {
			l.Publish(Event{Type: "X"})
		}
	}
	wg.Wait()
}

func TestWhoDoesNotWantAnEventIsNotWokenAndStandsBehindIt(t *testing.T) {
	l := began()
	games := filter{group: "games"}
	e, leave := l.subscribe(games.mayWant)
	defer leave()
	subscribers := []*subscriber{e}
	l.answers(subscribers)
	l.goes("lobby")
	l.goes("")
	l.Publish(Event{Type: NodeStatus})
	if woken := l.answers(subscribers); woken != 0 {
		t.Error("it was woken for events that it does not want")
	}
	c := client{at: cursor{pos: Position{Rev: 1}}}
	c.skip(l.broadcaster.endWait(e))
	if want := (cursor{pos: Position{Rev: 3}, liveCount: 1}); c.at != want {
		t.Errorf("it stands at %+v, want %+v", c.at, want)
	}
	l.answers(subscribers)
	l.goes("games")
	if woken := l.answers(subscribers); woken != 1 {
		t.Error("it was not woken for an event that it wants")
	}
	if len(l.after(c.at, 10).events) != 1 {
		t.Errorf("behind %+v the log has %+v", c.at, l.after(c.at, 10))
	}
}

func TestWhatCameWhileAClientReadIsNotWaitedFor(t *testing.T) {
	l := began()
	e, leave := l.subscribe(everything)
	defer leave()
	known := l.now()
	l.goes("g")
	if l.await(e, known) {
		t.Error("it waits, although there is more")
	}
	if !l.await(e, l.now()) {
		t.Error("it does not wait, although there is no more")
	}
}

// flooded is a response that adds an event during each write. It closes the streams on the third write
// and gives up after many.
type flooded struct {
	*httptest.ResponseRecorder
	log     *Log
	streams *Streams
	writes  int
}

func (f *flooded) Write(b []byte) (int, error) {
	if f.writes++; f.writes == 3 {
		f.streams.Close()
	}
	if f.writes < 1000 {
		f.log.goes(fmt.Sprint("g", f.writes))
	}
	return len(b), nil
}

func TestAStreamThatIsNeverUpToDateEndsWithItsGateway(t *testing.T) {
	l := began()
	w := &flooded{ResponseRecorder: httptest.NewRecorder(), log: l}
	c := l.writesTo(w)
	w.streams = c.streams
	c.serve(t.Context(), origin{pos: c.at.pos})
	if w.writes > 4 {
		t.Errorf("it was written to %d times before it ended", w.writes)
	}
}

// asking queries the log while it is encoded.
type asking struct{ log *Log }

func (a asking) MarshalJSON() ([]byte, error) { return fmt.Append(nil, a.log.Head()), nil }

func TestALiveEventIsEncodedWhileNobodyWaitsForTheLog(t *testing.T) {
	l := began()
	_, leave := l.subscribe(everything)
	defer leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Publish(Event{Type: "X", Fields: Fields{"of": asking{l}}})
	}()
	select {
	case <-done:
	case <-time.After(await.Patience):
		t.Fatal("it is encoded under the lock of the log")
	}
}

func TestNoMoreLiveEventsAreKeptThanFit(t *testing.T) {
	l := began()
	_, leave := l.subscribe(everything)
	defer leave()
	for range 2 * liveRing {
		l.Publish(Event{Type: "X"})
	}
	if n := len(l.after(cursor{pos: Position{Rev: 1}}, 1).live); n != liveRing {
		t.Errorf("%d live events are kept, want %d", n, liveRing)
	}
	for range 10 {
		l.Publish(Event{Type: "X", Fields: Fields{"payload": strings.Repeat("x", liveBytes/4)}})
	}
	if n := len(l.after(cursor{pos: Position{Rev: 1}}, 1).live); n > 4 || n == 0 {
		t.Errorf("%d large ones are kept, want at most 4", n)
	}
}

func TestABurstIsKeptWhileARoundHasToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 4096 // a batch of another gateway; its first event starts a round
		l := began()
		subscribers := l.many(1000)
		for range burst {
			l.Publish(Event{Type: "X"})
		}
		if woken := l.answers(subscribers); woken != len(subscribers) {
			t.Fatalf("%d were woken for the first", woken)
		}
		<-time.After(time.Duration(len(subscribers)) * wakeCost)
		synctest.Wait()
		if woken := l.answers(subscribers); woken != len(subscribers) {
			t.Fatalf("%d were woken for the others", woken)
		}
		if n := len(l.after(cursor{pos: Position{Rev: 1}, liveCount: 1}, 1).live); n != burst-1 {
			t.Errorf("%d of the %d others are left", n, burst-1)
		}
	})
}

// writesTo returns a client at the start of the log.
func (l *Log) writesTo(w http.ResponseWriter) *client {
	return &client{streams: New(Config{Log: l}), log: l, w: w, rc: http.NewResponseController(w), at: cursor{pos: Position{Rev: 1}}}
}

func TestLiveEventsThatAClientIsNotToldOfAreCounted(t *testing.T) {
	l := began()
	subscribers := l.many(1)
	w := httptest.NewRecorder()
	c := l.writesTo(w)
	for range liveRing + 10 {
		l.Publish(Event{Type: "X"})
	}
	if _, done, err := c.catchUp(context.Background()); err != nil || !done {
		t.Fatal(done, err)
	}
	if lost, told := testutil.ToFloat64(c.streams.metrics.lost), strings.Count(w.Body.String(), "data:"); lost != 10 || told != liveRing {
		t.Errorf("%v are lost, %d were told", lost, told)
	}
	for range liveRing + 10 { // events the client does not want, which is only checked in a round
		l.Publish(Event{Type: "X"})
	}
	l.answers(subscribers)
	c.skip(l.now())
	if _, done, err := c.catchUp(context.Background()); err != nil || !done {
		t.Fatal(done, err)
	}
	if lost := testutil.ToFloat64(c.streams.metrics.lost); lost != 10 {
		t.Errorf("with what was nothing to the client, %v are lost", lost)
	}
}

func TestWhatIsMuchIsWrittenInPieces(t *testing.T) {
	l := began()
	l.many(1)
	w := &counting{ResponseRecorder: httptest.NewRecorder()}
	c := l.writesTo(w)
	const events, each, most = 200, 5 << 10, 80 << 10
	for n := range events {
		l.Publish(Event{Type: "X", Fields: Fields{"n": n, "payload": strings.Repeat("x", each)}})
	}
	if _, done, err := c.catchUp(context.Background()); err != nil || !done {
		t.Fatal(done, err)
	}
	if told := strings.Count(w.Body.String(), "data:"); told != events {
		t.Errorf("%d of %d were told", told, events)
	}
	if w.largest > most || w.writes > 2*events*each/most {
		t.Errorf("%d writes of up to %d bytes", w.writes, w.largest)
	}
}

// counting is a response that counts calls.
type counting struct {
	*httptest.ResponseRecorder
	writes, flushes, deadlines int
	// largest is the size of the largest write, in bytes.
	largest int
}

func (c *counting) Write(b []byte) (int, error) {
	c.writes++
	c.largest = max(c.largest, len(b))
	return c.ResponseRecorder.Write(b)
}

func (c *counting) Flush() { c.flushes++ }

func (c *counting) SetWriteDeadline(time.Time) error { c.deadlines++; return nil }

func TestPendingEventsAreOneWriteInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := began()
		_, leave := l.subscribe(everything)
		defer leave()
		w := &counting{ResponseRecorder: httptest.NewRecorder()}
		c := l.writesTo(w)
		l.Publish(Event{Type: "A"})
		l.goes("b")
		l.Publish(Event{Type: "C"})
		l.Publish(Event{Type: "D"})
		l.goes("e")
		l.Publish(Event{Type: "F"})
		if _, done, err := c.catchUp(context.Background()); err != nil || !done {
			t.Fatal(done, err)
		}
		sent, from := w.Body.String(), 0
		for _, next := range []string{`"type":"A"`, `"groupName":"b"`, `"type":"C"`, `"type":"D"`, `"groupName":"e"`, `"type":"F"`} {
			i := strings.Index(sent[from:], next)
			if i < 0 {
				t.Fatalf("%s is not in its place in\n%s", next, sent)
			}
			from += i
		}
		if w.writes != 1 || w.flushes != 1 || w.deadlines != 1 {
			t.Errorf("%d writes, %d flushes, %d deadlines: want one of each", w.writes, w.flushes, w.deadlines)
		}
	})
}
