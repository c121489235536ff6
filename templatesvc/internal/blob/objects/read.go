package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

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

// fetch brings one of some forms onto the disk.
func (m *Medium) fetch(ctx context.Context, sum string, forms []blob.Form) error {
	var err error
	for range looks {
		var o *object
		if o, err = m.pick(ctx, sum, forms); err != nil {
			return err
		}
		if err = m.download(ctx, o); !errs.Is(err, errs.NotFound) { // else it went meanwhile
			return err
		}
	}
	return err
}

// pick is the object to read. NotFound when there is none.
func (m *Medium) pick(ctx context.Context, sum string, forms []blob.Form) (*object, error) {
	all, err := m.names(ctx, sum)
	if err != nil {
		return nil, err
	}
	for i := range all {
		for _, form := range forms {
			if all[i].Form == form {
				return &all[i], nil
			}
		}
	}
	return nil, errs.New(errs.NotFound, "blob %s is not stored in the bucket", sum)
}

func (m *Medium) download(ctx context.Context, o *object) error {
	return m.told("objects.download", m.again(ctx, func() error {
		tmp, err := m.read(ctx, o)
		if err != nil {
			return err
		}
		return m.cache.take(o.Sum, o.Form, tmp, o.Bytes)
	}))
}

// read writes an object to a file beside the cache, from its beginning.
func (m *Medium) read(ctx context.Context, o *object) (tmp *os.File, err error) {
	body, _, _, err := minio.Core{Client: m.client}.GetObject(ctx, m.bucket, o.Name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s3.Told(err)
	}
	defer body.Close()
	if tmp, err = m.cache.create(); err != nil {
		return nil, err
	}
	n, err := io.Copy(writer{tmp}, io.LimitReader(body, o.Bytes+1))
	var full *errs.Error
	switch {
	case err == nil && n != o.Bytes:
		err = errs.As(errs.Unavailable, "objects.read", fmt.Errorf("%d bytes came of %d", n, o.Bytes))
	case err != nil && !errors.As(err, &full): // the disk's own error says what to do
		err = s3.Told(err)
	}
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	if err != nil {
		m.cache.discard(tmp)
		return nil, err
	}
	return tmp, nil
}

// SetAside implements blob.Medium. What does not have its hash may have been damaged on
// this disk: only what is read wrongly from the bucket again is said to be corrupt.
func (m *Medium) SetAside(ctx context.Context, f blob.File, _ *os.File) error {
	m.cache.drop(f.Sum, f.Form)
	o, err := m.pick(ctx, f.Sum, []blob.Form{f.Form})
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return m.told("objects.SetAside", m.again(ctx, func() error {
		tmp, err := m.read(ctx, o)
		if err != nil {
			return gone(err)
		}
		defer m.cache.discard(tmp)
		sound, err := blob.Check(o.File, tmp)
		if sound || err != nil {
			return err
		}
		return m.say(ctx, o.Name, corrupt)
	}))
}

// gone takes it for done that an object is gone.
func gone(err error) error {
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
