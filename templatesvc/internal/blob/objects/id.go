package objects

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

// idName is the object that names this part of the bucket.
const idName = "store-id"

func (m *Medium) readID(ctx context.Context) (string, error) {
	body, _, _, err := minio.Core{Client: m.client}.GetObject(ctx, m.bucket, m.prefix+idName, minio.GetObjectOptions{})
	if err != nil {
		return "", s3.Told(err)
	}
	b, err := io.ReadAll(io.LimitReader(body, 100))
	return strings.TrimSpace(string(b)), errors.Join(s3.Told(err), body.Close())
}

// writeID names it, unless another replica was faster.
func (m *Medium) writeID(ctx context.Context) error {
	var options minio.PutObjectOptions
	options.SetMatchETagExcept("*")
	id := rand.Text()
	_, err := m.client.PutObject(ctx, m.bucket, m.prefix+idName, strings.NewReader(id), int64(len(id)), options)
	if err = s3.Told(err); errs.Is(err, errs.Conflict) {
		return nil
	}
	return err
}
