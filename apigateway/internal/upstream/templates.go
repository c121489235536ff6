package upstream

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// templateService is how the sessions of templatesvc are filed.
const templateService = "templatesvc"

// Templates reaches templatesvc for what only it may do.
type Templates struct {
	client   *client.Client
	breakers *breakers
}

// NewTemplates makes a client of the replicas in the view. httpClient may be nil.
func NewTemplates(v *view.View, secret string, httpClient *http.Client, log *slog.Logger) *Templates {
	resolve := func() []string {
		var urls []string
		for _, s := range v.Snapshot().ServiceSessions(templateService) {
			if s.URL != "" {
				urls = append(urls, s.URL)
			}
		}
		return urls
	}
	return &Templates{
		client:   client.New(client.Config{Resolve: resolve, Secret: secret, HTTP: httpClient, Log: log}),
		breakers: newBreakers(),
	}
}

// Rollback makes an older version the current one; an empty digest means the one
// before. NotFound when there is no such template or version.
func (t *Templates) Rollback(ctx context.Context, ref fleet.TemplateRef, digest, author string) (fleet.TemplateHead, error) {
	return through(t.breakers, templateService, "the template service", func() (fleet.TemplateHead, error) {
		return t.client.Rollback(ctx, ref, client.RollbackRequest{Digest: digest, Author: author})
	})
}
