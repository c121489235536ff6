package templatesvc

import (
	"context"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/catalog"
)

// openCatalog opens the store of the catalog's artifacts, in a directory beside the blobs.
func openCatalog(cfg Config, policy egress.Policy) (*catalog.Store, error) {
	return catalog.Open(catalog.Config{
		Dir: filepath.Join(cfg.BlobDir, "artifacts"), Egress: policy, Now: time.Now, Log: cfg.Log,
		Catalog: func(ctx context.Context) ([]fleet.CatalogPlatform, error) {
			all, _, err := store.List(ctx, cfg.Store, store.Catalog())
			return all, err
		},
	})
}
