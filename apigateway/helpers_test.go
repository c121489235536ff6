package apigateway

import (
	"context"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

func newUnstartedView(s *site) *view.View { return view.New(s.store, nil) }

// runWithView runs a gateway that is expected to end by itself.
func runWithView(t *testing.T, g *Gateway) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.cfg.View.Run(ctx) })
	err := g.Run(ctx)
	cancel()
	wg.Wait()
	return err
}

// removeTemplate takes a template's head away.
func (s *site) removeTemplate(h *fleet.TemplateHead) {
	s.t.Helper()
	s.commit(store.Remove(store.TemplateHeadKey(h.TemplateRef), h.ModRev))
}
