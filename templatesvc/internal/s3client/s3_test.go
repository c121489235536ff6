package s3client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page returns one page of a listing.
func page(next string, keys ...string) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, `<ListBucketResult><IsTruncated>%v</IsTruncated><NextContinuationToken>%s</NextContinuationToken>`, next != "", next)
	for _, k := range keys {
		_, _ = fmt.Fprintf(&b, `<Contents><Key>%s</Key><Size>1</Size><ETag>"x"</ETag><LastModified>2024-01-01T00:00:00Z</LastModified></Contents>`, k)
	}
	b.WriteString(`</ListBucketResult>`)
	return b.String()
}

func TestAListingEndsWhateverTheServerAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(n int) string // returns the nth page
		kind   errs.Kind
		keys   int
	}{
		"two pages":                     {func(n int) string { return []string{page("t", "p/a", "p/b"), page("", "p/c")}[min(n, 1)] }, errs.Internal, 3},
		"the same page again and again": {func(int) string { return page("t", "p/a", "p/b") }, errs.Unavailable, 2},
		"empty pages for ever":          {func(int) string { return page("t") }, errs.Unavailable, 0},
		"keys out of order":             {func(int) string { return page("", "p/b", "p/a") }, errs.Unavailable, 1},
		"a page of somebody between": {func(n int) string {
			return []string{page("t", "p/a", "p/b"), "<html><body>sorry</body></html>"}[min(n, 1)]
		}, errs.Unavailable, 2},
		"nothing in the end":     {func(n int) string { return []string{page("t", "p/a", "p/b"), ""}[min(n, 1)] }, errs.Unavailable, 2},
		"keys of another prefix": {func(int) string { return page("", "q/a") }, errs.Unavailable, 0},
		"keys for ever":          {func(n int) string { return page("t", fmt.Sprintf("p/%09d", n)) }, errs.TooLarge, 500},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.Header().Set("Content-Type", "application/xml")
				_, _ = fmt.Fprint(w, c.answer(asked-1))
			}))
			defer server.Close()
			client, done, err := s3client.Connect(s3client.Config{Endpoint: server.URL, PathStyle: true, AccessKey: "key", SecretKey: "secret", Tries: 1, Dialer: sources.Dialer{Egress: egresstest.Loopback()}})
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			n := 0
			for _, e := range s3client.List(t.Context(), client, "bucket", "p/", "", 500) {
				if err = e; e == nil {
					n++
				}
			}
			if n != c.keys || (c.kind == errs.Internal) != (err == nil) || err != nil && !errs.Is(err, c.kind) {
				t.Errorf("%d keys, %v", n, err)
			}
		})
	}
}

func TestAnAnswerWithoutEndIsNotReadToItsEnd(t *testing.T) {
	const far = 64 << 20
	piece := []byte(strings.Repeat("a", 1<<20))
	sent := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		n := 0
		for _, err := w.Write([]byte("<ListBucketResult><Contents><Key>p/")); err == nil && n < far; n += len(piece) {
			_, err = w.Write(piece)
		}
		sent <- n
	}))
	defer server.Close()
	client, done, err := s3client.Connect(s3client.Config{Endpoint: server.URL, PathStyle: true, AccessKey: "key", SecretKey: "secret", Tries: 1, Dialer: sources.Dialer{Egress: egresstest.Loopback()}})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, err = range s3client.List(t.Context(), client, "bucket", "p/", "", 500) {
		if err != nil {
			break
		}
	}
	if n := <-sent; n >= far || !errs.Is(err, errs.Unavailable) {
		t.Errorf("%d bytes were read, %v", n, err)
	}
}

func TestKeysStandInNoError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	url := server.URL
	for _, stopped := range []bool{false, true} {
		if stopped {
			server.Close()
		}
		client, done, err := s3client.Connect(s3client.Config{Endpoint: url, PathStyle: true, AccessKey: "publicpart", SecretKey: "secretpart", Tries: 1, Dialer: sources.Dialer{Egress: egresstest.Loopback()}})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range s3client.List(t.Context(), client, "bucket", "", "", 5) {
			if err == nil || strings.Contains(err.Error(), "publicpart") || strings.Contains(err.Error(), "secretpart") {
				t.Errorf("stopped %v: %v", stopped, err)
			}
		}
		done()
	}
	if _, _, err := s3client.Connect(s3client.Config{Endpoint: "http://me:secretpart@host"}); err == nil || strings.Contains(err.Error(), "secretpart") {
		t.Errorf("in the URL: %v", err)
	}
}
