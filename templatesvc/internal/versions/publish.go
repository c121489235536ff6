package versions

import (
	"context"
	"crypto/rand"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/casefold"
)

// Publish is an upload that is to become a version. Begin creates a record in etcd. While
// it exists, the garbage collector keeps everything that the publish stores or checks. If
// the record's lease is lost, some of that may have been collected, so Finish refuses to
// commit.
//
// A Publish is not safe for concurrent use. The caller closes it.
type Publish struct {
	service *Service
	session *store.Session
	key     keys.Key[content.TemplatePublish]
	// sure holds the blobs that are known to be stored since Begin.
	sure map[string]bool
}

// Begin starts a publish. what describes its purpose in a few words. The caller always
// closes it.
func (s *Service) Begin(ctx context.Context, what string) (*Publish, error) {
	id := rand.Text()
	key := keys.TemplatePublish(id)
	record := content.TemplatePublish{ID: id, Replica: s.cfg.Replica, What: what, StartedAt: s.cfg.Now().UTC()}
	session, err := store.OpenSession(ctx, s.cfg.Store, key, record, 0, false)
	if err != nil {
		return nil, errs.Wrap("template.Begin", err)
	}
	return &Publish{service: s, session: session, key: key, sure: map[string]bool{}}, nil
}

// Close ends the publish. Content that no version refers to is collected later.
func (p *Publish) Close(ctx context.Context) { p.session.Close(ctx) }

// Add stores the content of r, in chunks if it is large. It returns the errors of
// blob.Store.Add.
func (p *Publish) Add(ctx context.Context, r io.Reader, limit int64) (content.Content, error) {
	c, err := p.service.cfg.Blobs.Add(ctx, r, limit, func(sum string) { p.sure[sum] = true })
	return c, errs.Wrap("template.Add", err)
}

// Keep makes sure that existing content, from an older version or an earlier upload, is
// stored and is not collected. It returns Conflict when the content is missing and has to
// be uploaded again.
func (p *Publish) Keep(ctx context.Context, c content.Content) error {
	if err := p.keepBlobs(ctx, c.Blobs()); err != nil {
		return err
	}
	if c.Chunks == nil || p.sure[c.SHA256] {
		return nil
	}
	if err := p.service.cfg.Blobs.PutRecipe(ctx, c); err != nil {
		return errs.Wrap("template.Keep", err)
	}
	p.sure[c.SHA256] = true
	return nil
}

// keptAtOnce is the number of concurrent checks for blobs. In a bucket, each check is a
// request.
const keptAtOnce = 16

// keepBlobs checks the blobs that are not yet known to be stored.
func (p *Publish) keepBlobs(ctx context.Context, blobs []content.Chunk) error {
	wanted := map[string]int64{}
	for _, b := range blobs {
		if !p.sure[b.SHA256] {
			wanted[b.SHA256] = b.Size
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(keptAtOnce)
	for sum, size := range wanted {
		g.Go(func() error {
			err := p.service.cfg.Blobs.Ensure(ctx, content.Content{SHA256: sum, Size: size})
			if errs.Is(err, errs.NotFound) {
				return errs.New(errs.Conflict, "content %s is not stored any more: upload it again", sum)
			}
			return errs.Wrap("template.Keep", err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for sum := range wanted {
		p.sure[sum] = true
	}
	return nil
}

// Store stores a manifest, after Keep of all its content, and returns its digest. It
// returns Invalid and TooLarge like content.Manifest.Canonical and casefold.Check, and
// Conflict like Keep.
func (p *Publish) Store(ctx context.Context, m content.Manifest) (digest string, err error) {
	body, digest, err := m.Canonical(content.VersionLimits())
	if err == nil {
		err = casefold.Check(m)
	}
	if err != nil {
		return "", errs.Wrap("template.Store", err)
	}
	var blobs []content.Chunk
	for i := range m.Entries {
		if m.Entries[i].Kind == content.FileRegular {
			blobs = append(blobs, m.Entries[i].Content().Blobs()...)
		}
	}
	if err := p.keepBlobs(ctx, blobs); err != nil {
		return "", err
	}
	for i := range m.Entries {
		if m.Entries[i].Kind != content.FileRegular {
			continue
		}
		if err := p.Keep(ctx, m.Entries[i].Content()); err != nil {
			return "", err
		}
	}
	if p.sure[digest] {
		return digest, nil
	}
	if _, err := p.service.cfg.Blobs.Put(ctx, body); err != nil {
		return "", errs.Wrap("template.Store", err)
	}
	p.sure[digest] = true
	return digest, nil
}

// Finish makes the stored content durable and then commits a transaction that refers to it.
// The transaction also removes the publish's record. It returns Fenced when the record's
// lease was lost: the caller must begin again and store everything again. After the other
// errors, which are those of store.Commit, the publish is still open.
func (p *Publish) Finish(ctx context.Context, t store.Txn) (rev int64, err error) {
	if err := p.service.cfg.Blobs.Flush(ctx); err != nil {
		return 0, errs.Wrap("template.Finish", err)
	}
	t.Fences = append(t.Fences, p.session.Fence())
	t.Writes = append(t.Writes, store.Remove(p.key, p.session.Fence().Epoch()))
	rev, err = p.service.cfg.Store.Commit(ctx, t)
	return rev, errs.Wrap("template.Finish", err)
}
