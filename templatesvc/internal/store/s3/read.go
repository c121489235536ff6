package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// Open implements blob.Medium. It reads from the cache if possible.
func (m *Medium) Open(ctx context.Context, sum string, forms ...blob.Form) (*os.File, blob.Form, error) {
	for range looks {
		for _, form := range forms {
			if f := m.cache.open(sum, form); f != nil {
				return f, form, nil
			}
		}
		err := m.flights.Once(ctx, sum+string(forms[0]), func() error {
			if m.cache.has(sum, forms) { // another goroutine was faster
				return nil
			}
			return m.fetch(ctx, sum, forms)
		})
		if err != nil {
			return nil, "", err
		}
	}
	return nil, "", errs.New(errs.Unavailable, "blob %s was dropped before it was read: give the cache of blobs.s3 more room", sum)
}

// fetch downloads one of the forms into the cache. It tries objects that are marked as
// corrupt last, because the mark may be wrong.
func (m *Medium) fetch(ctx context.Context, sum string, forms []blob.Form) error {
	for range looks {
		all, err := m.names(ctx, sum)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(o object) bool { return !slices.Contains(forms, o.Form) })
		if len(all) == 0 {
			return errs.New(errs.NotFound, "blob %s is not stored in the bucket", sum)
		}
		changed := false
		for i := range all {
			tmp, err := m.sound(ctx, &all[i])
			switch {
			case err == nil:
				return m.cache.take(sum, all[i].Form, tmp)
			case errs.Is(err, errs.NotFound): // removed meanwhile
				changed = true
			case !errors.Is(err, errUnsound):
				return err
			}
		}
		if !changed {
			break
		}
	}
	return errs.New(errs.NotFound, "blob %s is damaged in the bucket: publish it again", sum)
}

// errUnsound means that an object's content has a wrong hash.
var errUnsound = errors.New("it does not have its hash")

// maxUnsound is the maximum number of entries in Medium.unsound.
const maxUnsound = 100_000

// sound downloads an object to a temporary file of the cache, which the caller discards or
// takes. If two downloads have a wrong hash, it marks the object as corrupt and returns
// errUnsound; this process does not download it again. It returns NotFound when the object
// does not exist.
func (m *Medium) sound(ctx context.Context, o *object) (tmp *os.File, err error) {
	m.mu.Lock()
	_, known := m.unsound[o.Name]
	m.mu.Unlock()
	if known {
		return nil, errUnsound
	}
	for range 2 {
		err = m.wrap("objects.read", m.again(ctx, func() (err error) {
			tmp, err = m.read(ctx, o)
			return err
		}))
		if !errors.Is(err, errUnsound) {
			return tmp, err
		}
	}
	if !o.corrupt() {
		if err := m.addMark(ctx, o.Name, corrupt); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.unsound) >= maxUnsound {
		clear(m.unsound)
	}
	m.unsound[o.Name] = struct{}{}
	return nil, errUnsound
}

// read downloads an object to a temporary file and verifies it on the way, before it is
// written to the disk. It returns errUnsound when the hash is wrong.
func (m *Medium) read(ctx context.Context, o *object) (tmp *os.File, err error) {
	body, _, _, err := minio.Core{Client: m.client}.GetObject(ctx, m.bucket, o.Name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s3client.ErrorOf(err)
	}
	defer body.Close()
	if tmp, err = m.cache.create(); err != nil {
		return nil, err
	}
	from := io.TeeReader(io.LimitReader(body, o.Bytes+1), writer{tmp})
	sound, err := blob.Check(o.File, from)
	if err == nil { // Check may stop before the end of wrong content
		_, err = io.Copy(io.Discard, from)
	}
	if full := (*errs.Error)(nil); err != nil && !errors.As(err, &full) { // errors of the cache already say what to do
		err = s3client.ErrorOf(err)
	}
	if err == nil {
		err = whole(tmp, o.Bytes)
	}
	if err == nil && !sound {
		err = errUnsound
	}
	if err != nil {
		m.cache.discard(tmp)
		return nil, err
	}
	return tmp, nil
}

// whole checks that a file has so many bytes and seeks to its beginning.
func whole(f *os.File, bytes int64) error {
	n, err := f.Seek(0, io.SeekCurrent)
	if err == nil && n != bytes {
		err = fmt.Errorf("received %d of %d bytes", n, bytes)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return errs.WrapAs(errs.Unavailable, "objects.read", err)
}

// SetAside implements blob.Medium. The download was verified, so the damage is on this
// disk. SetAside removes the cached file, so that it is downloaded again.
func (m *Medium) SetAside(_ context.Context, f blob.File, _ *os.File) error {
	m.cache.drop(f.Sum, f.Form)
	return nil
}

// gone drops the error that an object does not exist.
func gone(err error) error {
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
