package rest

import (
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/encoded"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// pageInstances is the largest page of instances, of which a fleet has more than of
	// anything else.
	pageInstances = 1000
	// keptPages is how much pages of instances are kept of one edition, in bytes; keptOrder,
	// how many instances are kept in order.
	keptPages, keptOrder = 32 << 20, 100_000
)

// shownInstances are instances as they are sent. Whoever may see instances is shown the same.
type shownInstances struct {
	endings *Endings
	// one has single instances, live those with live figures.
	one  *encoded.Objects[fleet.InstanceID, encoded.Instance, encoded.Ticking]
	live *encoded.Objects[fleet.InstanceID, livingFrom, encoded.Ticking]
	// order has the instances a filter wants, pages the bodies made of them.
	order *encoded.Memo[int64, instanceFilter, listing]
	pages *encoded.Memo[pagesFrom, pageWanted, *encoded.Body]
}

// livingFrom is what an instance is shown from together with its live figures.
type livingFrom struct {
	encoded.Instance
	live upstream.Live
}

// pagesFrom is what a page is made of: the instances, and the second it is.
type pagesFrom struct {
	version, second int64
}

type pageWanted struct {
	filter instanceFilter
	page   server.Wanted
}

func newShownInstances(e *Endings) *shownInstances {
	return &shownInstances{
		endings: e,
		one:     encoded.NewObjects[fleet.InstanceID, encoded.Instance, encoded.Ticking](),
		live:    encoded.NewObjects[fleet.InstanceID, livingFrom, encoded.Ticking](),
		order:   encoded.NewMemo[int64, instanceFilter](keptOrder, func(l listing) int { return len(l.all) }),
		pages:   encoded.NewMemo[pagesFrom, pageWanted](keptPages, (*encoded.Body).Size),
	}
}

// tickingOf encodes an instance.
func tickingOf(i instance) encoded.Ticking {
	var since time.Time
	if i.StartedAt != nil && i.FinishedAt == nil && i.UptimeMs != nil {
		since, i.UptimeMs = *i.StartedAt, new(int64)
	}
	body, err := json.Marshal(i)
	if err != nil { // strings, numbers, times and lists of them
		return encoded.NewTicking([]byte("null"), time.Time{})
	}
	return encoded.NewTicking(body, since)
}

// of is an instance as a snapshot has it.
func (h *shownInstances) of(s *view.Snapshot, i *fleet.Instance, now time.Time) encoded.Ticking {
	return h.one.Get(i.Intent.ID, encoded.InstanceOf(s, i), func() encoded.Ticking { return tickingOf(instanceOf(s, i, now)) })
}

// living is an instance with its live figures.
func (h *shownInstances) living(s *view.Snapshot, i *fleet.Instance, live upstream.Live, now time.Time) encoded.Ticking {
	return h.live.Get(i.Intent.ID, livingFrom{encoded.InstanceOf(s, i), live}, func() encoded.Ticking {
		out := instanceOf(s, i, now)
		out.addLive(live)
		return tickingOf(out)
	})
}

// page is the body of a page of the instances a filter wants; how long they have been up is
// exact to the second.
func (h *shownInstances) page(s *view.Snapshot, f instanceFilter, page server.Wanted, now time.Time) *encoded.Body {
	if f.none() {
		return encoded.NewBody(server.EncodePage(page, nil, func(to []byte, _ *fleet.Instance) []byte { return to }))
	}
	version, now := encoded.InstancesOf(s), now.Truncate(time.Second)
	return h.pages.Get(pagesFrom{version, now.Unix()}, pageWanted{f, page}, func() *encoded.Body {
		all := h.listed(s, f, now)
		return encoded.NewBody(server.EncodePage(page, all, func(to []byte, i *fleet.Instance) []byte { return h.of(s, i, now).Append(to, now) }))
	})
}

// bare are the first pageInstances instances a filter wants as an array without a page.
func (h *shownInstances) bare(s *view.Snapshot, f instanceFilter, now time.Time) []byte {
	out := []byte{'['}
	all := h.listed(s, f, now)
	for n, i := range all[:min(len(all), pageInstances)] {
		if n > 0 {
			out = append(out, ',')
		}
		out = h.of(s, i, now).Append(out, now)
	}
	return append(out, ']')
}

// listed are the instances a filter wants at a time, in order.
func (h *shownInstances) listed(s *view.Snapshot, f instanceFilter, now time.Time) []*fleet.Instance {
	if f.none() {
		return nil
	}
	return h.order.Get(encoded.InstancesOf(s), f, func() listing { return listingOf(s, f) }).at(now, h.endings.Of)
}
