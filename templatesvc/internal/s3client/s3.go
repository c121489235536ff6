// Package s3client connects to S3-compatible servers, with timeouts, errors that say what
// to do, and bounded listings.
//
// Invariants: Errors never contain keys. A listing is sorted, has each object once and
// never more than requested, even from a faulty server. Answers other than object content
// have a maximum size.
package s3client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// what names the server in errors.
const what = "the S3 server"

// Config says how to reach a server.
type Config struct {
	// Endpoint is the URL: scheme, host and port.
	Endpoint string
	// Region may be empty. PathStyle puts the bucket's name into the path.
	Region    string
	PathStyle bool
	AccessKey string
	SecretKey string
	// Tries is how often a request is made if the server cannot answer.
	Tries  int
	Dialer sources.Dialer
	// Through wraps the HTTP transport; may be nil.
	Through func(http.RoundTripper) http.RoundTripper
}

// Connect returns a client and a function that closes its idle connections. It makes no
// request. It returns Invalid with the field "url" for an unusable endpoint.
func Connect(cfg Config) (*minio.Client, func(), error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" {
		return nil, nil, errs.Field("url", "is not a URL")
	}
	if u.User != nil {
		return nil, nil, errs.Field("url", "must not hold keys: give them as credentials")
	}
	lookup := minio.BucketLookupAuto
	if cfg.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client := cfg.Dialer.Client()
	through := client.Transport
	if cfg.Through != nil {
		through = cfg.Through(through)
	}
	region := cmp.Or(cfg.Region, "us-east-1") // the default of servers without regions
	c, err := minio.New(u.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, ""),
		Secure: u.Scheme == "https", Transport: counting{through}, Region: region, BucketLookup: lookup, MaxRetries: cfg.Tries,
	})
	if err != nil {
		return nil, nil, &errs.Error{Kind: errs.Invalid, Field: "url", Message: "cannot be used as an S3 endpoint: give scheme, host and port alone", Err: err}
	}
	return c, client.CloseIdleConnections, nil
}

// ErrorOf converts a server's error: Invalid when the bucket does not exist, Denied when the
// keys are refused, NotFound when the object does not exist, Conflict when it has changed,
// and Unavailable when the server cannot answer now.
func ErrorOf(err error) error {
	r := minio.ToErrorResponse(err)
	switch {
	case err == nil:
		return nil
	case r.Code == minio.NoSuchBucket:
		return &errs.Error{Kind: errs.Invalid, Field: "bucket", Message: "does not exist on the S3 server", Err: err}
	case r.Code == minio.AccessDenied, r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized:
		return &errs.Error{Kind: errs.Denied, Message: what + " refuses the keys: check the access key, the secret key and their permissions", Err: err}
	case r.StatusCode == http.StatusNotFound:
		return &errs.Error{Kind: errs.NotFound, Message: "the bucket has no such object", Err: err}
	case r.StatusCode == http.StatusPreconditionFailed:
		return &errs.Error{Kind: errs.Conflict, Message: "the object is another one meanwhile", Err: err}
	case r.StatusCode >= http.StatusInternalServerError, r.StatusCode == http.StatusTooManyRequests:
		return &errs.Error{Kind: errs.Unavailable, Message: fmt.Sprintf("%s answers %d: templatesvc retries later; check the server if the error persists", what, r.StatusCode), Err: err}
	case r.StatusCode >= http.StatusBadRequest:
		return &errs.Error{Kind: errs.Unavailable, Message: fmt.Sprintf("%s refuses the request with %d %s: look at endpoint, region and path style", what, r.StatusCode, r.Code), Err: err}
	}
	return sources.Unreachable(what, err)
}

// emptyPages is the maximum number of successive pages of a listing without objects.
const emptyPages = 100

var errEndless = errors.New("its answer does not end")

// pagesKey is the context key of a listing's page count, an *atomic.Int64.
type pagesKey struct{}

// maxAnswer is the maximum size in bytes of an answer other than object content. A page of
// a listing has at most 1,000 keys of 1 KiB.
const maxAnswer = 8 << 20

// counting is a transport that limits the pages of a listing and the size of answers. It
// also refuses an answer that is not a listing: minio would parse an error page as an empty
// last page.
type counting struct{ http.RoundTripper }

// pageHead is how many bytes of an answer are checked to see whether it is a listing.
const pageHead = 1 << 10

var errNoListing = errors.New("it answers with something else than a listing")

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	pages, lists := r.Context().Value(pagesKey{}).(*atomic.Int64)
	if lists && pages.Add(1) > emptyPages {
		return nil, errEndless
	}
	response, err := c.RoundTripper.RoundTrip(r)
	if err != nil || !lists && r.Method == http.MethodGet {
		return response, err
	}
	response.Body = &bounded{response.Body, maxAnswer}
	if !lists || response.StatusCode != http.StatusOK {
		return response, nil
	}
	return page(response)
}

// page refuses an answer that does not start like a page of a listing.
func page(response *http.Response) (*http.Response, error) {
	body := bufio.NewReaderSize(response.Body, pageHead)
	head, err := body.Peek(pageHead)
	if whole := err == nil || errors.Is(err, io.EOF); whole && !bytes.Contains(head, []byte("ListBucketResult")) {
		return nil, errors.Join(errNoListing, response.Body.Close())
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{body, response.Body}
	return response, nil
}

// bounded is an answer with a maximum size.
type bounded struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errEndless
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Again calls a function up to tries times while it returns Unavailable. It pauses between
// calls, and doubles the pause each time.
func Again(ctx context.Context, tries int, wait time.Duration, do func() error) error {
	err := do()
	for range tries - 1 {
		if !errs.Is(err, errs.Unavailable) || !pause.For(ctx, wait) {
			break
		}
		wait *= 2
		err = do()
	}
	return err
}

// List lists the objects with a prefix whose keys come after a key ("" for all), sorted by
// key. It reads pages as needed. It returns TooLarge after most objects, and Unavailable
// when the server lists keys unsorted, repeatedly, or in endless pages. Other errors are
// those of ErrorOf, or ctx's error.
func List(ctx context.Context, c *minio.Client, bucket, prefix, after string, most int) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		var pages atomic.Int64
		ctx := context.WithValue(ctx, pagesKey{}, &pages)
		owner := false
		last, n := after, 0
		for o := range c.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix, StartAfter: after, Recursive: true, FetchOwner: &owner}) {
			err := o.Err
			switch {
			case errors.Is(err, errEndless):
				err = unsound(errEndless)
			case errors.Is(err, errNoListing):
				err = unsound(errNoListing)
			case err != nil:
				err = ErrorOf(err)
			case !strings.HasPrefix(o.Key, prefix) || last != "" && o.Key <= last:
				err = unsound(fmt.Errorf("it lists %q after %q", o.Key, last))
			case n == most:
				err = errs.New(errs.TooLarge, "the prefix holds more than %d objects: give a longer one", most)
			}
			if err != nil {
				yield(minio.ObjectInfo{}, err)
				return
			}
			last = o.Key
			n++
			pages.Store(0)
			if !yield(o, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil { // the listing stops without an error then
			yield(minio.ObjectInfo{}, errs.Wrap("s3.List", err))
		}
	}
}

func unsound(err error) error {
	return &errs.Error{Kind: errs.Unavailable, Message: what + " does not list as S3 does: use another one", Err: err}
}
