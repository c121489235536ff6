package upstream

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// templateService is the service name of templatesvc's sessions.
const templateService = "templatesvc"

// Templates calls templatesvc.
type Templates struct {
	client *client.Client
	// bulk has its own connections, because long transfers occupy them.
	bulk     *client.Client
	breakers *breakers
}

// NewTemplates returns a client of the replicas in the view. bulk is for uploads. Calls that make no
// progress are canceled.
func NewTemplates(h *Health, v *view.View, calls, bulk Connections, log *slog.Logger) *Templates {
	resolve := func() []string {
		var urls []string
		for _, s := range v.Snapshot().ServiceSessions(templateService) {
			if s.URL != "" {
				urls = append(urls, s.URL)
			}
		}
		return urls
	}
	replicas := pki.Identity{Service: pki.Templates}
	return &Templates{
		client:   client.New(client.Config{Resolve: resolve, Secret: calls.Token, HTTP: attend(calls.To(replicas), askPatience), Log: log}),
		bulk:     client.New(client.Config{Resolve: resolve, Secret: bulk.Token, HTTP: attend(bulk.To(replicas), uploadPatience), Log: log}),
		breakers: h.of[kindTemplates],
	}
}

// Files lists a directory of a version; deep includes all subdirectories. Errors are those of
// client.Files.
func (t *Templates) Files(ctx context.Context, digest, dir string, deep bool) ([]content.ManifestEntry, error) {
	return ask(t, func() ([]content.ManifestEntry, error) { return t.client.Files(ctx, digest, dir, deep) })
}

// File opens a file of a version. Errors are those of client.File.
func (t *Templates) File(ctx context.Context, digest, path string) (*client.File, error) {
	return ask(t, func() (*client.File, error) { return t.client.File(ctx, digest, path) })
}

// Search searches a version for a text. Errors are those of client.Search.
func (t *Templates) Search(ctx context.Context, digest, text string, most int) (client.Found, error) {
	return ask(t, func() (client.Found, error) { return t.client.Search(ctx, digest, text, most) })
}

// Placeholders returns the keys that a version's files use.
func (t *Templates) Placeholders(ctx context.Context, digest string) (client.Placeholders, error) {
	return ask(t, func() (client.Placeholders, error) { return t.client.Placeholders(ctx, digest) })
}

// Archive packs a directory of a version. Errors are those of client.Archive.
func (t *Templates) Archive(ctx context.Context, digest, dir, format string) (io.ReadCloser, error) {
	return ask(t, func() (io.ReadCloser, error) { return t.client.Archive(ctx, digest, dir, format) })
}

// Export packs a version with its variable definitions. Errors are those of client.Export.
func (t *Templates) Export(ctx context.Context, digest, format string, most content.Visibility) (io.ReadCloser, error) {
	return ask(t, func() (io.ReadCloser, error) { return t.client.Export(ctx, digest, format, most) })
}

// PutFile writes a file. Errors are those of client.PutFile.
func (t *Templates) PutFile(ctx context.Context, c client.Change, only bool, body io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.PutFile(ctx, c, 0, only, body) })
}

// Edit performs all operations or none. Errors are those of client.Edit.
func (t *Templates) Edit(ctx context.Context, c client.Change, ops ...client.Op) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.Edit(ctx, c, ops...) })
}

// Import unpacks an archive into a directory of a template. Errors are those of client.Import.
func (t *Templates) Import(ctx context.Context, c client.Change, format string, body io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.Import(ctx, c, false, format, body) })
}

// Upload writes the files of a form and returns their paths. Errors are those of client.Upload.
func (t *Templates) Upload(ctx context.Context, c client.Change, extract bool, kind string, form io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.Upload(ctx, c, extract, kind, form) })
}

// CreateOf creates a template from a form. Errors are those of client.CreateOf.
func (t *Templates) CreateOf(ctx context.Context, c client.Change, kind string, form io.Reader) (client.Edited, error) {
	return send(t, func(to *client.Client) (client.Edited, error) { return to.CreateOf(ctx, c, kind, form) })
}

// Create creates an empty template. Errors are those of client.CreateTemplate.
func (t *Templates) Create(ctx context.Context, ref content.TemplateRef, d client.Description, by client.Asked) (content.TemplateHead, error) {
	return ask(t, func() (content.TemplateHead, error) { return t.client.CreateTemplate(ctx, ref, d, by) })
}

// Describe changes a template's description. Errors are those of client.DescribeTemplate.
func (t *Templates) Describe(ctx context.Context, ref content.TemplateRef, d client.Description, by client.Asked) (content.TemplateHead, error) {
	return ask(t, func() (content.TemplateHead, error) { return t.client.DescribeTemplate(ctx, ref, d, by) })
}

// Delete deletes a template. Errors are those of client.DeleteTemplate.
func (t *Templates) Delete(ctx context.Context, ref content.TemplateRef, by client.Asked) error {
	_, err := ask(t, func() (struct{}, error) { return struct{}{}, t.client.DeleteTemplate(ctx, ref, by) })
	return err
}

// DeleteVersion deletes a version. Errors are those of client.DeleteVersion.
func (t *Templates) DeleteVersion(ctx context.Context, ref content.TemplateRef, digest string, by client.Asked) error {
	_, err := ask(t, func() (struct{}, error) { return struct{}{}, t.client.DeleteVersion(ctx, ref, digest, by) })
	return err
}

// Diff returns the differences between two versions. Errors are those of client.Diff.
func (t *Templates) Diff(ctx context.Context, from, to, path string) (client.Difference, error) {
	return ask(t, func() (client.Difference, error) { return t.client.Diff(ctx, from, to, path) })
}

// Define replaces the definitions of a template's variables. Errors are those of client.Define.
func (t *Templates) Define(ctx context.Context, c client.Change, variables []content.Variable) (client.Edited, error) {
	return ask(t, func() (client.Edited, error) {
		return t.client.Define(ctx, c, client.Definitions{Variables: variables})
	})
}

// Variables returns the variable definitions of a version. Errors are those of client.Manifest.
func (t *Templates) Variables(ctx context.Context, digest string) ([]content.Variable, error) {
	return ask(t, func() ([]content.Variable, error) {
		body, err := t.client.Manifest(ctx, digest)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		b, err := io.ReadAll(io.LimitReader(body, content.MaxManifestBytes+1))
		if err != nil {
			return nil, errs.WrapAs(errs.Unavailable, "upstream.Variables", err)
		}
		m, err := content.DecodeManifest(b, digest, content.VersionLimits())
		return m.Variables, err
	})
}

// PublishDraft publishes the draft of c.Author. Errors are those of client.PublishDraft.
func (t *Templates) PublishDraft(ctx context.Context, c client.Change) (client.Edited, error) {
	return ask(t, func() (client.Edited, error) { return t.client.PublishDraft(ctx, c) })
}

// DropDraft deletes the draft of c.Author. Errors are those of client.DropDraft.
func (t *Templates) DropDraft(ctx context.Context, c client.Change) error {
	_, err := ask(t, func() (struct{}, error) { return struct{}{}, t.client.DropDraft(ctx, c) })
	return err
}

// Pin downloads a URL and returns the hash of its content. Errors are those of client.Pin.
func (t *Templates) Pin(ctx context.Context, url string) (content.Content, error) {
	return send(t, func(to *client.Client) (content.Content, error) { return to.Pin(ctx, url) })
}

// ask calls any replica through the service's breaker.
func ask[T any](t *Templates, f func() (T, error)) (T, error) {
	return through(t.breakers, templateService, "the template service", f)
}

// send is ask for calls that may take minutes.
func send[T any](t *Templates, f func(to *client.Client) (T, error)) (T, error) {
	return beside(t.breakers, templateService, "the template service", func() (T, error) { return f(t.bulk) })
}

// Text reports whether a file's content is text: UTF-8 without NUL. If content is only the start of the
// file, its last character may be incomplete.
func Text(content []byte, whole bool) bool {
	if !whole {
		for range min(len(content), utf8.UTFMax) {
			if r, _ := utf8.DecodeLastRune(content); r != utf8.RuneError {
				break
			}
			content = content[:len(content)-1]
		}
	}
	return bytes.IndexByte(content, 0) < 0 && utf8.Valid(content)
}

// Rollback makes an older version current; an empty digest means the previous one. It returns NotFound
// if the template or version does not exist.
func (t *Templates) Rollback(ctx context.Context, ref content.TemplateRef, digest string, by client.Asked) (content.TemplateHead, error) {
	return ask(t, func() (content.TemplateHead, error) {
		return t.client.Rollback(ctx, ref, client.RollbackRequest{Digest: digest}, by)
	})
}
