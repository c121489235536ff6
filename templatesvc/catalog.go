package templatesvc

import (
	"context"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/artifacts"
)

// openCatalog opens the cache of the catalog's artifacts, in a directory beside the blobs.
func openCatalog(cfg Config, policy egress.Policy) (*artifacts.Store, error) {
	return artifacts.Open(artifacts.Config{
		Dir: filepath.Join(cfg.BlobDir, "artifacts"), Egress: policy, Now: time.Now, Log: cfg.Log,
		Catalog: func(ctx context.Context) ([]content.CatalogPlatform, error) {
			all, _, err := store.List(ctx, cfg.Store, keys.Catalog())
			return all, err
		},
	})
}
