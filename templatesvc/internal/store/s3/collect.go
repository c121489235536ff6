package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// addMark adds a mark to an object.
func (m *Medium) addMark(ctx context.Context, name, what string) error {
	return m.wrap("objects.addMark", m.again(ctx, func() error {
		_, err := m.client.PutObject(ctx, m.bucket, name+mark+what, strings.NewReader(what), int64(len(what)), checked())
		return s3client.ErrorOf(err)
	}))
}

// remove deletes an object. It is no error if it does not exist.
func (m *Medium) remove(ctx context.Context, name string) error {
	return m.wrap("objects.remove", m.again(ctx, func() error {
		return gone(s3client.ErrorOf(m.client.RemoveObject(ctx, m.bucket, name, minio.RemoveObjectOptions{})))
	}))
}

// Files implements blob.Medium. It also removes marks whose object is gone. That is safe,
// because a name is never used again.
func (m *Medium) Files(ctx context.Context) iter.Seq2[blob.File, error] {
	return func(yield func(blob.File, error) bool) {
		for o, err := range m.below(ctx, m.prefix, maxObjects) {
			if err == nil && !o.listed {
				if err = m.forget(ctx, o); err == nil {
					continue
				}
			}
			o.Condemned = len(o.marks) > 0
			if !yield(o.File, err) || err != nil {
				return
			}
		}
	}
}

// forget removes the marks of an object that was not listed. It first checks that the
// object does not exist, because it may have appeared during the listing.
func (m *Medium) forget(ctx context.Context, o object) error {
	err := m.again(ctx, func() error {
		_, err := m.client.StatObject(ctx, m.bucket, o.Name, minio.StatObjectOptions{})
		return s3client.ErrorOf(err)
	})
	if !errs.Is(err, errs.NotFound) {
		return m.wrap("objects.forget", err)
	}
	for _, name := range o.marks {
		if err := m.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// cycle is a collection. It marks each object that it condemns, even if an earlier
// collection has condemned it. So it buries only what it has condemned itself.
type cycle struct {
	*Medium
	name string
}

// NewCycle implements blob.Medium.
func (m *Medium) NewCycle(context.Context, string) (blob.Cycle, error) {
	return &cycle{m, rand.Text()}, nil
}

// Adopt implements blob.Medium. It adopts nothing, because each cycle condemns again what
// earlier ones left.
func (m *Medium) Adopt(context.Context, string, func(string) bool, time.Duration) (blob.Cycle, error) {
	return nil, nil
}

// Condemn implements blob.Cycle.
func (c *cycle) Condemn(ctx context.Context, f blob.File) error {
	return c.addMark(ctx, f.Name, c.name)
}

// Condemned implements blob.Cycle.
func (c *cycle) Condemned(ctx context.Context) iter.Seq2[blob.File, error] {
	return func(yield func(blob.File, error) bool) {
		for o, err := range c.below(ctx, c.prefix, maxObjects) {
			if err == nil && !o.has(c.name) {
				continue
			}
			if !yield(o.File, err) || err != nil {
				return
			}
		}
	}
}

// Restore implements blob.Cycle. It copies the content to a new name, unless there is a
// valid one, and removes the condemned name. If the object is corrupt and the only one, it
// stays with its corrupt mark.
func (c *cycle) Restore(ctx context.Context, f blob.File) error {
	for range looks {
		all, err := c.names(ctx, f.Sum)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(o object) bool { return o.valid() && o.serves(f) }) {
			_, err := c.Bury(ctx, f)
			return err
		}
		at := slices.IndexFunc(all, func(o object) bool { return o.Name == f.Name })
		if at < 0 {
			return c.remove(ctx, f.Name+mark+c.name)
		}
		err = c.rename(ctx, &all[at])
		if errors.Is(err, errUnsound) {
			return c.acquit(ctx, &all[at])
		}
		if err = gone(err); err != nil {
			return err
		}
	}
	return errs.New(errs.Unavailable, "content %s is condemned again and again: collected later", f.Sum)
}

// acquit removes the marks of all collections from an object, but not the corrupt mark.
func (c *cycle) acquit(ctx context.Context, o *object) error {
	for _, name := range o.marks {
		if name == o.Name+mark+corrupt {
			continue
		}
		if err := c.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Bury implements blob.Cycle. It removes the object first, and then its marks.
func (c *cycle) Bury(ctx context.Context, f blob.File) (int64, error) {
	if err := c.remove(ctx, f.Name); err != nil {
		return 0, err
	}
	var said []string
	for o, err := range s3client.List(ctx, c.client, c.bucket, f.Name+mark, "", maxNames) {
		if err != nil {
			return 0, c.wrap("objects.Bury", err)
		}
		said = append(said, o.Key)
	}
	for _, name := range said {
		if err := c.remove(ctx, name); err != nil {
			return 0, err
		}
	}
	return f.Bytes, nil
}

// End implements blob.Cycle.
func (c *cycle) End(context.Context) error { return nil }
