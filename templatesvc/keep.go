package templatesvc

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/collect"
	"github.com/orreryhq/orrery/templatesvc/internal/peer"
	"github.com/orreryhq/orrery/templatesvc/internal/scrub"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
	"github.com/orreryhq/orrery/templatesvc/internal/vault"
)

// DefaultKeepVersions is how many versions of a template are worth keeping.
const DefaultKeepVersions = 1000

// DefaultScrubInterval is how long reading a disk again may take.
const DefaultScrubInterval = 7 * 24 * time.Hour

// publishPoll is how often a collection looks whether open publishes have ended.
const publishPoll = time.Second

// figures are the service's metrics; nil ones count nothing.
type figures struct {
	requests         *prometheus.CounterVec
	collected, bytes *prometheus.CounterVec
	scrubbed         *prometheus.CounterVec
}

func newFigures(r prometheus.Registerer) (f figures, err error) {
	if r == nil {
		return f, nil
	}
	m := telemetry.NewMetrics(r, "templatesvc")
	f.requests = m.Counter("http_requests", "Calls by route.", "route")
	f.collected = m.Counter("collected_blobs", "Blobs removed because nothing referred to them.")
	f.bytes = m.Counter("collected_bytes", "What removed blobs took on the disk.")
	f.scrubbed = m.Counter("scrubbed_blobs", "Files of contents read again on the disk: sound, corrupt, healed or unread.", "health")
	f.collected.WithLabelValues()
	f.bytes.WithLabelValues()
	for _, h := range blob.Healths { // an increase is seen of what was there before: the first damaged file is one
		f.scrubbed.WithLabelValues(string(h))
	}
	return f, m.Err()
}

func (f figures) count(r collect.Report) {
	if f.collected != nil {
		f.collected.WithLabelValues().Add(float64(r.Removed))
		f.bytes.WithLabelValues().Add(float64(r.Bytes))
	}
}

func (f figures) seen(h blob.Health) {
	if f.scrubbed != nil {
		f.scrubbed.WithLabelValues(string(h)).Inc()
	}
}

// newScrubber makes what reads this replica's disk again; nil where contents lie elsewhere,
// or nobody wants it.
func newScrubber(cfg Config, blobs *blob.Store, f figures) *scrub.Scrubber {
	if cfg.Bucket != nil || cfg.ScrubInterval == 0 {
		return nil
	}
	return &scrub.Scrubber{Store: blobs, Every: cfg.ScrubInterval, Seen: f.seen, Log: cfg.Log}
}

// newContent makes the service over what is kept, and what keeps it on other disks.
func newContent(cfg Config, k content) (*peer.Mirror, *template.Service) {
	v := vault.New(k.blobs)
	var mirror *peer.Mirror
	service := template.New(template.Config{
		Store: cfg.Store, Vault: v, Replica: cfg.Replica, Now: cfg.Now, Log: cfg.Log,
		Copy: func(ctx context.Context, digest string) int { return mirror.Copy(ctx, digest) },
	})
	copies := cfg.Copies
	if cfg.Bucket != nil {
		copies = 1 // its server sees to copies
	}
	mirror = peer.New(peer.Config{
		Store: cfg.Store, Vault: v, Replica: cfg.Replica, Secret: cfg.ClusterSecret, Roots: service.Roots, Copies: copies,
		Shared: cfg.Bucket != nil, Log: cfg.Log,
	})
	if k.before != nil {
		v.AskElsewhere(inOrder{held{k.before}, mirror})
	} else {
		v.AskElsewhere(mirror)
	}
	return mirror, service
}

// newKeeper makes what removes versions nobody needs and content nothing refers to.
func newKeeper(cfg Config, blobs *blob.Store, service *template.Service, f figures) *collect.Keeper {
	return collect.NewKeeper(
		&collect.Collector{Store: blobs, Referrers: service, Replica: cfg.Replica, Poll: publishPoll},
		func(ctx context.Context) error { return service.Retire(ctx, cfg.KeepVersions) },
		f.count, cfg.Log,
	)
}
