package collect

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
)

// marking is what is referred to, as far as it was read: 32 bytes for each blob.
type marking struct {
	blobs map[[32]byte]struct{}
	// read are the manifests whose content is marked.
	read map[string]struct{}
	// wholes are the large files that manifests name by the hash of the whole alone.
	wholes map[string]int64
}

func newMarking() *marking {
	return &marking{blobs: map[[32]byte]struct{}{}, read: map[string]struct{}{}, wholes: map[string]int64{}}
}

func (m *marking) add(sum string) {
	var key [32]byte
	if n, err := hex.Decode(key[:], []byte(sum)); err == nil && n == len(key) {
		m.blobs[key] = struct{}{}
	}
}

func (m *marking) has(sum string) bool {
	var key [32]byte
	n, err := hex.Decode(key[:], []byte(sum))
	_, ok := m.blobs[key]
	return ok || err != nil || n != len(key)
}

// mark reads every manifest that has to stay, unless it was read before, and marks what
// it names.
func (c *Collector) mark(ctx context.Context, m *marking) error {
	c.step()
	roots, err := c.Referrers.Roots(ctx)
	if err != nil {
		return err
	}
	for _, digest := range roots {
		if _, done := m.read[digest]; done {
			continue
		}
		if err := c.markManifest(ctx, m, digest); err != nil {
			return err
		}
		m.read[digest] = struct{}{}
	}
	for sum, size := range m.wholes {
		if err := c.markWhole(ctx, m, sum, size); err != nil {
			return err
		}
	}
	return nil
}

// markManifest marks a manifest and the files it names: chunks, recipes and whole files.
func (c *Collector) markManifest(ctx context.Context, m *marking, digest string) error {
	body, err := c.Store.ReadAll(ctx, digest)
	if err != nil {
		return unreadable("the manifest "+digest, err)
	}
	var manifest fleet.Manifest
	if err := json.Unmarshal(body, &manifest); err != nil {
		return errs.As(errs.Internal, "collect.mark", fmt.Errorf("manifest %s: %w", digest, err))
	}
	m.add(digest)
	for i := range manifest.Entries {
		e := &manifest.Entries[i]
		if e.Kind != fleet.FileRegular {
			continue
		}
		content := e.Content()
		m.add(content.SHA256)
		if content.Chunks == nil && content.Size >= blob.RecipeFrom {
			m.wholes[content.SHA256] = content.Size
		}
		for _, b := range content.Chunks {
			m.add(b.SHA256)
		}
	}
	return nil
}

// markWhole marks what a file is joined from that stands whole in a manifest: it may be
// stored by a recipe alone. One that is stored in neither way may have its chunks here.
func (c *Collector) markWhole(ctx context.Context, m *marking, sum string, size int64) error {
	recipe, err := c.Store.RecipeHere(ctx, sum)
	if errs.Is(err, errs.NotFound) {
		if there, err := c.Store.Has(ctx, sum, size); there || err != nil {
			return err
		}
		recipe, err = c.Store.Recipe(ctx, sum)
	}
	if err != nil {
		return unreadable("what the file "+sum+" is joined from", err)
	}
	for _, b := range recipe.Chunks {
		m.add(b.SHA256)
	}
	return nil
}

// unreadable ends a cycle: what cannot be read may refer to anything.
func unreadable(what string, err error) error {
	return &errs.Error{
		Op: "collect.mark", Kind: errs.KindOf(err), Err: err,
		Message: what + " cannot be read, so nothing is removed: start the replica that has it, or delete the versions that name it",
	}
}
