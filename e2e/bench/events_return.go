package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// returners is the number of clients; each reconnects returns times.
	returners, returns = 100, 100
	// returnRate is the number of writes a second. returnHear is the maximum number of
	// events that a client receives before it disconnects.
	returnRate, returnHear = 100, 20
	// returnPause is the time between the kills of gateways.
	returnPause = time.Second
)

// measureReturns lets clients disconnect and reconnect ten thousand times to two gateways,
// which are killed or stopped in turn and started again.
func (e *eventBench) measureReturns(ctx context.Context) error {
	rev, err := e.store.Revision(ctx)
	if err != nil {
		return err
	}
	pair := &gatewayPair{gateways: e.gateways}
	defer pair.stop()
	if err := pair.startBoth(ctx); err != nil {
		return err
	}
	w := &writing{store: e.store, prefix: "return", pause: time.Second / returnRate}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	working, over := context.WithCancel(ctx)
	defer over()
	ended := make(chan error, 2)
	for _, work := range []func() error{func() error { return w.run(working, 1<<30) }, func() error { return pair.restart(working) }} {
		go func() {
			err := work()
			if err != nil { // nothing to receive, or no gateway to receive it from
				fail(err)
			}
			ended <- err
		}()
	}
	var clients sync.WaitGroup
	all := make([]*returner, returners)
	for n := range all {
		all[n] = &returner{bench: e, pair: pair, writing: w, id: strconv.FormatInt(rev, 10)}
		clients.Go(func() { all[n].come(ctx) })
	}
	clients.Wait()
	over()
	if err := errors.Join(<-ended, <-ended); err != nil {
		return err
	}
	// All writes must arrive in the end, from gateways that are no longer killed.
	last := int(w.begun.Load())
	for _, r := range all {
		clients.Go(func() { r.hear(ctx, last) })
	}
	clients.Wait()
	var lost, twice, times int
	for _, r := range all {
		if r.err != nil {
			return r.err
		}
		lost, twice, times = lost+r.lost+last-r.next, twice+r.twice, times+r.times
	}
	e.report("sse_returns", float64(times), "reconnects", -1)
	e.report("sse_returns_deaths", float64(pair.deaths.Load()), "gateways", -1)
	e.report("sse_returns_events", float64(last*returners), "events", -1)
	e.report("sse_returns_lost", float64(lost), "events", 0)
	e.report("sse_returns_twice", float64(twice), "events", 0)
	return nil
}

// returner is a client that reconnects repeatedly.
type returner struct {
	bench   *eventBench
	pair    *gatewayPair
	writing *writing

	id                 string // of the last event
	next               int    // the number of the next event
	times, lost, twice int
	err                error
}

// come reconnects as often as required.
func (r *returner) come(ctx context.Context) {
	for r.times < returns && r.err == nil && ctx.Err() == nil {
		r.visit(ctx, r.next+1+rand.IntN(returnHear))
	}
}

// hear reconnects until a number of events has been received.
func (r *returner) hear(ctx context.Context, count int) {
	for deadline := time.Now().Add(eventPatience); r.next < count && r.err == nil && time.Now().Before(deadline) && ctx.Err() == nil; {
		r.visit(ctx, count)
	}
}

// visit opens one stream and reads it up to an event or its end.
func (r *returner) visit(ctx context.Context, upTo int) {
	s, err := r.bench.listen(ctx, r.pair.any(), r.id)
	if err != nil { // the gateway is being killed
		pause.For(ctx, 10*time.Millisecond)
		return
	}
	defer s.Close()
	r.times++
	for r.next < upTo {
		name, err := s.next()
		if errors.Is(err, errLost) {
			r.err = err
		}
		if err != nil {
			return
		}
		r.id = s.last
		number, mine := strings.CutPrefix(name, r.writing.prefix+"-")
		if !mine {
			continue
		}
		n, err := strconv.Atoi(number)
		switch {
		case err != nil:
			r.err = fmt.Errorf("heard of %s", name)
			return
		case n < r.next:
			r.twice++
		default:
			r.lost += n - r.next
			r.next = n + 1
		}
	}
}

// gatewayPair is two gateways, one of which may be down.
type gatewayPair struct {
	*gateways
	deaths atomic.Int64

	mu    sync.Mutex
	pair  [2]*gateway
	names int
}

func (p *gatewayPair) startBoth(ctx context.Context) error {
	for n := range p.pair {
		if err := p.replace(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// replace starts another gateway in a place.
func (p *gatewayPair) replace(ctx context.Context, place int) error {
	p.names++
	g, err := p.start(ctx, fmt.Sprint("pair-", p.names))
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pair[place] = g
	return nil
}

// any returns the URL of one gateway, which may be down.
func (p *gatewayPair) any() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pair[rand.IntN(len(p.pair))].url
}

func (p *gatewayPair) at(place int) *gateway {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pair[place]
}

// restart kills or stops the gateways in turn and starts others in their places.
func (p *gatewayPair) restart(ctx context.Context) error {
	for n := 0; pause.For(ctx, returnPause); n++ {
		old := p.at(n % len(p.pair))
		if n/len(p.pair)%2 == 0 {
			old.Kill()
		} else if err := old.Stop(); err != nil {
			return err
		}
		p.deaths.Add(1)
		// The replacement is also started after the last kill.
		if err := p.replace(context.WithoutCancel(ctx), n%len(p.pair)); err != nil {
			return err
		}
	}
	return nil
}

func (p *gatewayPair) stop() {
	for _, g := range p.pair {
		if g != nil {
			g.Kill()
		}
	}
}
