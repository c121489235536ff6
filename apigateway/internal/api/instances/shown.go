package instances

import (
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/bodycache"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// pageInstances is the size of the largest page. It exceeds that of other lists because a fleet
	// has many instances.
	pageInstances = 1000
	// keptPages bounds the cached pages of one snapshot, in bytes. keptOrder bounds the cached
	// lists, in instances.
	keptPages, keptOrder = 16 << 20, 400_000
)

// viewCache caches encoded instances. All callers who may see an instance see the same. Cached pages and
// lists have the instances of all groups.
type viewCache struct {
	endings *Endings
	// one holds instances without, live those with live figures.
	one  *bodycache.Objects[fleet.InstanceID, bodycache.Instance, bodycache.UptimeObject]
	live *bodycache.Objects[fleet.InstanceID, liveKey, bodycache.UptimeObject]
	// order holds the lists that filters select, pages the bodies made from them.
	order *bodycache.Memo[int64, instanceFilter, listing]
	pages *bodycache.Memo[pagesKey, pageKey, *bodycache.Body]
}

// liveKey is what an instance with live figures is encoded from.
type liveKey struct {
	bodycache.Instance
	live upstream.Live
}

// pagesKey is what pages are encoded from: the version of the instances, and the second.
type pagesKey struct {
	version, second int64
}

type pageKey struct {
	filter instanceFilter
	page   server.Wanted
}

func newViewCache(e *Endings) *viewCache {
	return &viewCache{
		endings: e,
		one:     bodycache.NewObjects[fleet.InstanceID, bodycache.Instance, bodycache.UptimeObject](),
		live:    bodycache.NewObjects[fleet.InstanceID, liveKey, bodycache.UptimeObject](),
		order:   bodycache.NewMemo[int64, instanceFilter](keptOrder, func(l listing) int { return len(l.all) }),
		pages:   bodycache.NewMemo[pagesKey, pageKey](keptPages, (*bodycache.Body).Size),
	}
}

// tickingOf encodes an instance. Its uptime ticks on in the encoded form.
func tickingOf(i Instance) bodycache.UptimeObject {
	var since time.Time
	if i.StartedAt != nil && i.FinishedAt == nil && i.UptimeMs != nil {
		since, i.UptimeMs = *i.StartedAt, new(int64)
	}
	body, err := json.Marshal(i)
	if err != nil { // unreachable: only strings, numbers and times
		return bodycache.NewUptimeObject([]byte("null"), time.Time{})
	}
	return bodycache.NewUptimeObject(body, since)
}

// of encodes an instance of a snapshot.
func (h *viewCache) of(s *view.Snapshot, i *fleet.Instance, now time.Time) bodycache.UptimeObject {
	return h.one.Get(i.Intent.ID, bodycache.InstanceOf(s, i), func() bodycache.UptimeObject { return tickingOf(InstanceOf(s, i, now)) })
}

// living encodes an instance with live figures.
func (h *viewCache) living(s *view.Snapshot, i *fleet.Instance, live upstream.Live, now time.Time) bodycache.UptimeObject {
	return h.live.Get(i.Intent.ID, liveKey{bodycache.InstanceOf(s, i), live}, func() bodycache.UptimeObject {
		out := InstanceOf(s, i, now)
		out.addLive(live)
		return tickingOf(out)
	})
}

// page returns the body of a page of the selected instances. Uptimes are exact to the second.
func (h *viewCache) page(s *view.Snapshot, f instanceFilter, page server.Wanted, now time.Time) *bodycache.Body {
	if f.matchesNothing() {
		return bodycache.NewBody(server.EncodePage(page, nil, func(to []byte, _ *fleet.Instance) []byte { return to }))
	}
	version, now := bodycache.InstancesOf(s), now.Truncate(time.Second)
	return h.pages.Get(pagesKey{version, now.Unix()}, pageKey{f, page}, func() *bodycache.Body {
		return bodycache.NewBody(h.pageOf(s, h.listed(s, f, now), page, now))
	})
}

// pageOf returns the body of a page of instances. It is not cached.
func (h *viewCache) pageOf(s *view.Snapshot, all []*fleet.Instance, page server.Wanted, now time.Time) []byte {
	return server.EncodePage(page, all, func(to []byte, i *fleet.Instance) []byte { return h.of(s, i, now).Append(to, now) })
}

// bare returns the first pageInstances selected instances as a bare array; see seen.
func (h *viewCache) bare(s *view.Snapshot, f instanceFilter, sees func(fleet.GroupName) bool, now time.Time) []byte {
	out := []byte{'['}
	all := h.seen(s, f, sees, now)
	for n, i := range all[:min(len(all), pageInstances)] {
		if n > 0 {
			out = append(out, ',')
		}
		out = h.of(s, i, now).Append(out, now)
	}
	return append(out, ']')
}

// seen is listed for a caller who sees some groups only; all if sees is nil.
func (h *viewCache) seen(s *view.Snapshot, f instanceFilter, sees func(fleet.GroupName) bool, now time.Time) []*fleet.Instance {
	all := h.listed(s, f, now)
	if sees == nil {
		return all
	}
	var out []*fleet.Instance
	for _, i := range all {
		if sees(i.Intent.Group) {
			out = append(out, i)
		}
	}
	return out
}

// listed returns the selected instances in order.
func (h *viewCache) listed(s *view.Snapshot, f instanceFilter, now time.Time) []*fleet.Instance {
	if f.matchesNothing() {
		return nil
	}
	return h.order.Get(bodycache.JoinedOf(s), f, func() listing { return listingOf(s, f) }).at(now, h.endings.Of)
}
