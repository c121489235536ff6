package template

import (
	"context"
	"crypto/rand"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/spelling"
)

// Publish is content on its way to a version. From Begin on a record in etcd says so,
// and nothing that the publish stores or relies on is collected until it ends; when
// the record's lease is lost, what it relied on may be gone, and Finish is refused.
//
// A Publish is for one goroutine, which closes it.
type Publish struct {
	service *Service
	session *store.Session
	key     store.Key[fleet.TemplatePublish]
	// sure holds the blobs that are known to be stored since Begin.
	sure map[string]bool
}

// Begin opens a publish; what says in a few words what for. Close it in any case.
func (s *Service) Begin(ctx context.Context, what string) (*Publish, error) {
	id := rand.Text()
	key := store.TemplatePublishKey(id)
	record := fleet.TemplatePublish{ID: id, Replica: s.cfg.Replica, What: what, StartedAt: s.cfg.Now().UTC()}
	session, err := store.OpenSession(ctx, s.cfg.Store, key, record, 0, false)
	if err != nil {
		return nil, errs.Wrap("template.Begin", err)
	}
	return &Publish{service: s, session: session, key: key, sure: map[string]bool{}}, nil
}

// Close ends the publish. What it stored and no version names is collected later.
func (p *Publish) Close(ctx context.Context) { p.session.Close(ctx) }

// Add stores what r yields, in chunks when it is large. Errors as of vault.Vault.Add.
func (p *Publish) Add(ctx context.Context, r io.Reader, limit int64) (fleet.Content, error) {
	c, err := p.service.cfg.Vault.Add(ctx, r, limit, func(sum string) { p.sure[sum] = true })
	return c, errs.Wrap("template.Add", err)
}

// Keep makes sure that content known by its hash, of an older version or an earlier
// upload, is stored and stays. Conflict when it is not: it has to be added again.
func (p *Publish) Keep(ctx context.Context, c fleet.Content) error {
	if err := p.keepBlobs(ctx, c.Blobs()); err != nil {
		return err
	}
	if c.Chunks == nil || p.sure[c.SHA256] {
		return nil
	}
	if err := p.service.cfg.Vault.PutRecipe(ctx, c); err != nil {
		return errs.Wrap("template.Keep", err)
	}
	p.sure[c.SHA256] = true
	return nil
}

// keptAtOnce is how many blobs are looked for at the same time: each is a question to a
// server where contents lie in a bucket.
const keptAtOnce = 16

// keepBlobs makes sure of the blobs that are not known to be stored.
func (p *Publish) keepBlobs(ctx context.Context, blobs []fleet.Chunk) error {
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
			err := p.service.cfg.Vault.Ensure(ctx, fleet.Content{SHA256: sum, Size: size})
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

// Store stores a manifest and returns its digest. All content it names is kept.
// Invalid and TooLarge as of fleet.Manifest.Canonical and spelling.Check, Conflict as of
// Keep.
func (p *Publish) Store(ctx context.Context, m fleet.Manifest) (digest string, err error) {
	body, digest, err := m.Canonical(fleet.VersionLimits())
	if err == nil {
		err = spelling.Check(m)
	}
	if err != nil {
		return "", errs.Wrap("template.Store", err)
	}
	var blobs []fleet.Chunk
	for i := range m.Entries {
		if m.Entries[i].Kind == fleet.FileRegular {
			blobs = append(blobs, m.Entries[i].Content().Blobs()...)
		}
	}
	if err := p.keepBlobs(ctx, blobs); err != nil {
		return "", err
	}
	for i := range m.Entries {
		if m.Entries[i].Kind != fleet.FileRegular {
			continue
		}
		if err := p.Keep(ctx, m.Entries[i].Content()); err != nil {
			return "", err
		}
	}
	if p.sure[digest] {
		return digest, nil
	}
	if _, err := p.service.cfg.Vault.Put(ctx, body); err != nil {
		return "", errs.Wrap("template.Store", err)
	}
	p.sure[digest] = true
	return digest, nil
}

// Finish makes what was stored durable and then commits a transaction that refers to
// it, if the publish still stands; the publish's record goes with it. Fenced when its
// lease was lost: begin again and store all anew. Other errors as of store.Commit; the
// publish goes on then.
func (p *Publish) Finish(ctx context.Context, t store.Txn) (rev int64, err error) {
	if err := p.service.cfg.Vault.Flush(ctx); err != nil {
		return 0, errs.Wrap("template.Finish", err)
	}
	t.Fences = append(t.Fences, p.session.Fence())
	t.Writes = append(t.Writes, store.Remove(p.key, p.session.Fence().Epoch()))
	rev, err = p.service.cfg.Store.Commit(ctx, t)
	return rev, errs.Wrap("template.Finish", err)
}
