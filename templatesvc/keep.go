package templatesvc

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/store/gc"
	"github.com/orreryhq/orrery/templatesvc/internal/store/integrity"
	"github.com/orreryhq/orrery/templatesvc/internal/store/replication"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// DefaultKeepVersions is the default number of versions kept per template.
const DefaultKeepVersions = 1000

// DefaultScrubInterval is the default duration of reading all file contents again.
const DefaultScrubInterval = 7 * 24 * time.Hour

// publishPoll is the interval at which a collection checks whether open publishes have
// ended.
const publishPoll = time.Second

// figures are the service's metrics.
type figures struct {
	requests         *prometheus.CounterVec
	collected, bytes *prometheus.CounterVec
	scrubbed         *prometheus.CounterVec
}

func newFigures(r prometheus.Registerer) (f figures, err error) {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	m := telemetry.NewMetrics(r, "templatesvc")
	f.requests = m.Counter("http_requests", "Calls by route.", "route")
	f.collected = m.Counter("collected_blobs", "Blobs removed because nothing referred to them.")
	f.bytes = m.Counter("collected_bytes", "What removed blobs took on the disk.")
	f.scrubbed = m.Counter("scrubbed_blobs", "Files of contents read again on the disk: sound, corrupt, healed or unread.", "health")
	f.collected.WithLabelValues()
	f.bytes.WithLabelValues()
	for _, h := range blob.Healths { // start at 0, so that the first damaged file shows as an increase
		f.scrubbed.WithLabelValues(string(h))
	}
	return f, m.Err()
}

func (f figures) count(r gc.Report) {
	f.collected.WithLabelValues().Add(float64(r.Removed))
	f.bytes.WithLabelValues().Add(float64(r.Bytes))
}

func (f figures) seen(h blob.Health) { f.scrubbed.WithLabelValues(string(h)).Inc() }

// newScrubber returns the scrubber of this replica's disk. It returns nil when a bucket is
// used or scrubbing is off.
func newScrubber(cfg Config, blobs *blob.Store, f figures) *integrity.Scrubber {
	if cfg.Bucket != nil || cfg.ScrubInterval == 0 {
		return nil
	}
	return &integrity.Scrubber{Store: blobs, Every: cfg.ScrubInterval, Seen: f.seen, Log: cfg.Log}
}

// newContent returns the service and the mirror that copies its content to other replicas.
func newContent(cfg Config, k body) (*replication.Mirror, *versions.Service) {
	var mirror *replication.Mirror
	service := versions.New(versions.Config{
		Store: cfg.Store, Blobs: k.blobs, Replica: cfg.Replica, Now: cfg.Now, Log: cfg.Log,
		Copy: func(ctx context.Context, digest string) int { return mirror.Copy(ctx, digest) },
	})
	copies := cfg.Copies
	if cfg.Bucket != nil {
		copies = 1 // the bucket's server makes the copies
	}
	mirror = replication.New(replication.Config{
		Store: cfg.Store, Blobs: k.blobs, Replica: cfg.Replica, Peers: cfg.Peers, Roots: service.Roots, Copies: copies,
		Shared: cfg.Bucket != nil, Log: cfg.Log,
	})
	if k.before != nil {
		k.blobs.AskElsewhere(localFirst{k.before, mirror})
	} else {
		k.blobs.AskElsewhere(mirror)
	}
	return mirror, service
}

// newKeeper returns the keeper that removes old versions and unreferenced content.
func newKeeper(cfg Config, blobs *blob.Store, service *versions.Service, f figures) *gc.Keeper {
	return gc.NewKeeper(
		&gc.Collector{Store: blobs, Referrers: service, Replica: cfg.Replica, Poll: publishPoll},
		func(ctx context.Context) error { return service.Retire(ctx, cfg.KeepVersions) },
		f.count, cfg.Log,
	)
}
