package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
)

// idPrefix is the prefix of the objects that hold the store's ID.
const idPrefix = "store-id/"

// ID implements blob.Medium. It returns the first ID in the listing, and creates one if
// there is none. This needs no conditional writes. Two replicas may each create an ID, and
// the later one may be first in the listing, so ID reads the listing each time.
func (m *Medium) ID(ctx context.Context) (id string, err error) {
	err = m.again(ctx, func() (err error) {
		if id, err = m.firstID(ctx); err != nil || id != "" {
			return err
		}
		_, err = m.client.PutObject(ctx, m.bucket, m.prefix+idPrefix+rand.Text(), strings.NewReader(""), 0, checked())
		if err != nil {
			return s3client.ErrorOf(err)
		}
		if id, err = m.firstID(ctx); err == nil && id == "" {
			err = errs.WrapAs(errs.Unavailable, "objects.ID", errors.New("the S3 server does not list what was written"))
		}
		return err
	})
	return id, m.wrap("objects.ID", err)
}

// firstID returns "" if the store has no ID.
func (m *Medium) firstID(ctx context.Context) (string, error) {
	for o, err := range s3client.List(ctx, m.client, m.bucket, m.prefix+idPrefix, "", 1) {
		return strings.TrimPrefix(o.Key, m.prefix+idPrefix), err
	}
	return "", nil
}
