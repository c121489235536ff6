package workspace

import (
	"context"
	"sync"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/render"
)

// Origin tells what the files of a built directory were made of. It is safe for
// concurrent use; close it, so that the cache may forget its templates.
type Origin struct {
	builder *Builder
	request Request

	mu      sync.Mutex
	app     *application // nil until it was asked
	release func()
}

// Origin tells of the directory that was built as requested.
func (b *Builder) Origin(r Request) *Origin { return &Origin{builder: b, request: r} }

// Of is what a file was made of; the zero value for one that neither templates nor
// patches brought. Errors are Failures, or of Kind Canceled.
func (o *Origin) Of(ctx context.Context, name string) (of render.Original, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.open(ctx); err != nil {
		return of, err
	}
	e, brought := o.app.tree.files[name]
	switch {
	case brought && e.Kind != fleet.FileRegular, !brought && !o.app.text.rules.Creates(name):
		return of, nil
	case brought && !o.app.made(name):
		return render.Original{SHA256: e.SHA256}, nil
	case brought:
		if of.Template, err = o.app.merged(ctx, name); err != nil {
			return of, err
		}
	}
	of.Made, _, err = o.app.text.edited(o.app.text.rules, name, of.Template)
	return of, err
}

// open reads the templates once.
func (o *Origin) open(ctx context.Context) error {
	if o.app != nil {
		return nil
	}
	rules := render.RulesOf(o.request.Plan, o.request.Values)
	t, err := o.builder.merge(ctx, o.request.Plan.Layers, rules)
	if err != nil {
		return err
	}
	o.app = &application{builder: o.builder, request: o.request, tree: t, text: newText(rules)}
	o.release = o.builder.cache.Hold(digests(o.request.Plan.Layers), t.entries())
	return nil
}

// Close lets go of the templates.
func (o *Origin) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.release != nil {
		o.release()
		o.app, o.release = nil, nil
	}
}
