package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

// Open implements blob.Medium: what was read lately is read from the disk.
func (m *Medium) Open(ctx context.Context, sum string, forms ...blob.Form) (*os.File, blob.Form, error) {
	for range looks {
		for _, form := range forms {
			if f := m.cache.open(sum, form); f != nil {
				return f, form, nil
			}
		}
		err := m.flights.Once(ctx, sum+string(forms[0]), func() error {
			if m.cache.has(sum, forms) { // by whoever was faster
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

// fetch brings one of some forms onto the disk. What was said to be corrupt comes last: it
// was perhaps read wrongly by who said so.
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
			case errs.Is(err, errs.NotFound): // it went meanwhile
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

// errUnsound is the error of an object that does not have its hash.
var errUnsound = errors.New("it does not have its hash")

// maxUnsound bounds what is remembered of objects that do not have their hash.
const maxUnsound = 100_000

// sound reads an object to a file beside the cache; discard it or have it taken.
// errUnsound when it does not have its hash, read twice: then it is said to be corrupt
// and not read again by this process. NotFound when it is gone.
func (m *Medium) sound(ctx context.Context, o *object) (tmp *os.File, err error) {
	m.mu.Lock()
	_, known := m.unsound[o.Name]
	m.mu.Unlock()
	if known {
		return nil, errUnsound
	}
	for range 2 {
		err = m.told("objects.read", m.again(ctx, func() (err error) {
			tmp, err = m.read(ctx, o)
			return err
		}))
		if !errors.Is(err, errUnsound) {
			return tmp, err
		}
	}
	if !o.corrupt() {
		if err := m.say(ctx, o.Name, corrupt); err != nil {
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

// read writes an object to a file beside the cache, from its beginning, and checks it as
// it comes, before any disk has had it. errUnsound when it does not have its hash.
func (m *Medium) read(ctx context.Context, o *object) (tmp *os.File, err error) {
	body, _, _, err := minio.Core{Client: m.client}.GetObject(ctx, m.bucket, o.Name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s3.Told(err)
	}
	defer body.Close()
	if tmp, err = m.cache.create(); err != nil {
		return nil, err
	}
	from := io.TeeReader(io.LimitReader(body, o.Bytes+1), writer{tmp})
	sound, err := blob.Check(o.File, from)
	if err == nil { // what is wrong may not have been read to its end
		_, err = io.Copy(io.Discard, from)
	}
	if full := (*errs.Error)(nil); err != nil && !errors.As(err, &full) { // the disk's own error says what to do
		err = s3.Told(err)
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

// whole reports whether a file was written with so many bytes, and has it read from the
// beginning.
func whole(f *os.File, bytes int64) error {
	n, err := f.Seek(0, io.SeekCurrent)
	if err == nil && n != bytes {
		err = fmt.Errorf("%d bytes came of %d", n, bytes)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return errs.As(errs.Unavailable, "objects.read", err)
}

// SetAside implements blob.Medium. What was read had its hash as it came, so it was damaged
// on this disk: it is read from the bucket again.
func (m *Medium) SetAside(_ context.Context, f blob.File, _ *os.File) error {
	m.cache.drop(f.Sum, f.Form)
	return nil
}

// gone takes it for done that an object is gone.
func gone(err error) error {
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
