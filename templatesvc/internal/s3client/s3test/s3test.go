// Package s3test runs an S3 server in the test process.
package s3test

import (
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
)

// Bucket is the name of the server's only bucket.
const Bucket = "bucket"

// Server is an S3 server with one bucket in memory.
type Server struct {
	Backend *s3mem.Backend
	Handler http.Handler
}

// New returns a server without a listener.
func New() (*Server, error) {
	backend := s3mem.New()
	if err := backend.CreateBucket(Bucket); err != nil {
		return nil, errs.WrapAs(errs.Internal, "s3test.New", err)
	}
	return &Server{backend, gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()}, nil
}

// Keys returns the names of all objects, sorted.
func (s *Server) Keys() (keys []string, err error) {
	all, err := s.Backend.ListBucket(Bucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "s3test.Keys", err)
	}
	for _, o := range all.Contents {
		keys = append(keys, o.Key)
	}
	return keys, nil
}

// Near returns a configuration that reaches the server without a network. before is called
// before each request and may fail it.
func (s *Server) Near(before func(*http.Request) error) s3client.Config {
	return s3client.Config{
		Endpoint: "http://s3.invalid", PathStyle: true, AccessKey: "key", SecretKey: "secret",
		Through: func(http.RoundTripper) http.RoundTripper { return near{s.Handler, before} },
	}
}

type near struct {
	handler http.Handler
	before  func(*http.Request) error
}

// RoundTrip implements http.RoundTripper.
func (n near) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := n.before(r); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.RequestURI, r.Host = r.URL.RequestURI(), r.URL.Host
	if r.Body == nil {
		r.Body = http.NoBody
	}
	r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	response := w.Result()
	response.Request = r
	return response, nil
}
