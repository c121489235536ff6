package objects

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
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

// say puts a mark on an object.
func (m *Medium) say(ctx context.Context, name, what string) error {
	return m.told("objects.say", m.again(ctx, func() error {
		_, err := m.client.PutObject(ctx, m.bucket, name+mark+what, strings.NewReader(what), int64(len(what)), checked())
		return s3.Told(err)
	}))
}

// remove removes a name for good. One that is gone already is no error.
func (m *Medium) remove(ctx context.Context, name string) error {
	return m.told("objects.remove", m.again(ctx, func() error {
		return gone(s3.Told(m.client.RemoveObject(ctx, m.bucket, name, minio.RemoveObjectOptions{})))
	}))
}

// Files implements blob.Medium. Marks whose object is gone go too: names are not used
// twice, so none of that name comes again.
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

// forget removes the marks of an object that was not listed, if it is gone: it may have
// come while its place had been listed already.
func (m *Medium) forget(ctx context.Context, o object) error {
	err := m.again(ctx, func() error {
		_, err := m.client.StatObject(ctx, m.bucket, o.Name, minio.StatObjectOptions{})
		return s3.Told(err)
	})
	if !errs.Is(err, errs.NotFound) {
		return m.told("objects.forget", err)
	}
	for _, name := range o.marks {
		if err := m.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// cycle is a collection: what it condemns carries its mark, also what others condemned,
// so that it buries only what was condemned before its own seal.
type cycle struct {
	*Medium
	name string
}

// NewCycle implements blob.Medium.
func (m *Medium) NewCycle(context.Context, string) (blob.Cycle, error) {
	return &cycle{m, rand.Text()}, nil
}

// Adopt implements blob.Medium: there is nothing to adopt, since every cycle condemns
// anew what others left condemned.
func (m *Medium) Adopt(context.Context, string, func(string) bool, time.Duration) (blob.Cycle, error) {
	return nil, nil
}

// Condemn implements blob.Cycle.
func (c *cycle) Condemn(ctx context.Context, f blob.File) error { return c.say(ctx, f.Name, c.name) }

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

// Restore implements blob.Cycle: the content gets another name unless it has one, and
// the condemned name goes. What is corrupt stays, for want of better, and stays marked so.
func (c *cycle) Restore(ctx context.Context, f blob.File) error {
	for range looks {
		all, err := c.names(ctx, f.Sum)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(o object) bool { return o.standing() && o.serves(f) }) {
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

// acquit removes what collections said of an object, also such as died, but not that it is
// corrupt.
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

// Bury implements blob.Cycle: the name first, and then what is said of it.
func (c *cycle) Bury(ctx context.Context, f blob.File) (int64, error) {
	if err := c.remove(ctx, f.Name); err != nil {
		return 0, err
	}
	var said []string
	for o, err := range s3.List(ctx, c.client, c.bucket, f.Name+mark, "", maxNames) {
		if err != nil {
			return 0, c.told("objects.Bury", err)
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
