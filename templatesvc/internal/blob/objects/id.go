package objects

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

// idPrefix begins the names of the objects that name this part of the bucket.
const idPrefix = "store-id/"

// ID implements blob.Medium: the first of the names that replicas gave it. Who finds none
// gives it one, which needs nothing of a server but a listing. Two may do so at once, and
// the second may come first in order, so that the name is asked for each time.
func (m *Medium) ID(ctx context.Context) (id string, err error) {
	err = m.again(ctx, func() (err error) {
		if id, err = m.firstID(ctx); err != nil || id != "" {
			return err
		}
		_, err = m.client.PutObject(ctx, m.bucket, m.prefix+idPrefix+rand.Text(), strings.NewReader(""), 0, checked())
		if err != nil {
			return s3.Told(err)
		}
		if id, err = m.firstID(ctx); err == nil && id == "" {
			err = errs.As(errs.Unavailable, "objects.ID", errors.New("the S3 server does not list what was written"))
		}
		return err
	})
	return id, m.told("objects.ID", err)
}

// firstID is "" when the part has no name.
func (m *Medium) firstID(ctx context.Context) (string, error) {
	for o, err := range s3.List(ctx, m.client, m.bucket, m.prefix+idPrefix, "", 1) {
		return strings.TrimPrefix(o.Key, m.prefix+idPrefix), err
	}
	return "", nil
}
