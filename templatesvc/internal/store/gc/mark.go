package gc

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// marking is the set of referenced blobs, with 32 bytes per blob.
type marking struct {
	blobs map[[32]byte]struct{}
	// read holds the manifests whose content is marked.
	read map[string]struct{}
	// wholes holds the sizes of large files that manifests list by the hash of the whole
	// only.
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

// mark reads all manifests that must be kept, unless they were read before, and marks what
// they refer to.
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

// markManifest marks a manifest and its files: chunks, recipes and whole files.
func (c *Collector) markManifest(ctx context.Context, m *marking, digest string) error {
	body, err := c.Store.ReadAll(ctx, digest)
	if err != nil {
		return unreadable("the manifest "+digest, err)
	}
	var manifest content.Manifest
	if err := json.Unmarshal(body, &manifest); err != nil {
		return errs.WrapAs(errs.Internal, "collect.mark", fmt.Errorf("manifest %s: %w", digest, err))
	}
	m.add(digest)
	for i := range manifest.Entries {
		e := &manifest.Entries[i]
		if e.Kind != content.FileRegular {
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

// markWhole marks the chunks of a file that a manifest lists by its hash only, because it
// may be stored by a recipe. If neither the file nor a recipe is stored, it fetches the
// recipe, because the chunks may still be here.
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

// unreadable returns the error that ends a cycle. Something that cannot be read may refer
// to any blob.
func unreadable(what string, err error) error {
	return &errs.Error{
		Op: "collect.mark", Kind: errs.KindOf(err), Err: err,
		Message: what + " cannot be read, so nothing is removed: start the replica that has it, or delete the versions that name it",
	}
}
