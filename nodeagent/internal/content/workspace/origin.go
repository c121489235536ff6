package workspace

import (
	"context"
	"sync"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// Origin finds what the files of a built directory were made from. It is safe for concurrent
// use. Close releases the templates, which it pins in the cache.
type Origin struct {
	builder *Builder
	request Request

	mu      sync.Mutex
	app     *applier // nil until the first call of Of
	release func()
}

// Origin returns the origin of the directory that was built with r.
func (b *Builder) Origin(r Request) *Origin { return &Origin{builder: b, request: r} }

// Of returns what a file was made from; the zero value if neither templates nor patches have
// it. Errors are Failures, or have the Kind Canceled.
func (o *Origin) Of(ctx context.Context, name string) (of render.Original, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.open(ctx); err != nil {
		return of, err
	}
	e, brought := o.app.tree.files[name]
	switch {
	case brought && e.Kind != content.FileRegular, !brought && !o.app.text.rules.Creates(name):
		return of, nil
	case brought && !o.app.generated(name):
		return render.Original{SHA256: e.SHA256}, nil
	case brought:
		if of.Template, err = o.app.mergedText(ctx, name); err != nil {
			return of, err
		}
	}
	of.Rendered, _, err = o.app.text.edit(o.app.text.rules, name, of.Template)
	return of, err
}

// open reads the manifests on first use.
func (o *Origin) open(ctx context.Context) error {
	if o.app != nil {
		return nil
	}
	rules := render.RulesOf(o.request.Plan, o.request.Values)
	t, err := o.builder.merge(ctx, o.request.Plan.Layers, rules)
	if err != nil {
		return err
	}
	o.app = &applier{builder: o.builder, request: o.request, tree: t, text: newTextEditor(rules)}
	o.release = o.builder.cache.Pin(digests(o.request.Plan.Layers), t.entries())
	return nil
}

// Close releases the templates.
func (o *Origin) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.release != nil {
		o.release()
		o.app, o.release = nil, nil
	}
}
