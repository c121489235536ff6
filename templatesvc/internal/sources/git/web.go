package git

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// web is a remote over HTTP.
type web struct {
	client      *http.Client
	base        string // after redirects
	host        string // the only host that receives the credentials
	credentials content.SourceCredentials
}

func newWeb(r sources.Request, u *url.URL) *web {
	return &web{client: r.Dialer.Client(), base: strings.TrimSuffix(u.String(), "/"), host: u.Host, credentials: r.Credentials}
}

// Close implements remote.
func (w *web) Close() { w.client.CloseIdleConnections() }

func (w *web) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, errs.Field("url", "is not a URL")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		req.Header.Set("Accept", "application/x-git-upload-pack-result")
	}
	if w.credentials.Token != "" && req.URL.Host == w.host {
		// Servers that identify users by the token accept any name.
		req.SetBasicAuth(cmp.Or(w.credentials.User, "git"), w.credentials.Token)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, sources.Unreachable(what, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, errs.New(errs.Denied, "%s refuses the credentials (%s): look at user and token", what, resp.Status)
	case http.StatusNotFound:
		return nil, errs.Field("url", "leads to no repository: %s does not know it, or hides it from these credentials (%s)", what, resp.Status)
	}
	return nil, errs.New(errs.Unavailable, "%s answers %s: look at the URL and the server", what, resp.Status)
}

// refs implements remote.
func (w *web) refs(ctx context.Context) (*packp.AdvRefs, error) {
	const path, query = "/info/refs", "?service=git-upload-pack"
	resp, err := w.do(ctx, http.MethodGet, path+query, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "application/x-git-upload-pack-advertisement" {
		return nil, errs.Field("url", "leads to no Git repository, but to %q: give the URL that git clone takes", resp.Header.Get("Content-Type"))
	}
	final := *resp.Request.URL
	final.RawQuery = ""
	w.base = strings.TrimSuffix(final.String(), path)
	return decodeRefs(resp.Body)
}

// pack implements remote.
func (w *web) pack(ctx context.Context, request []byte) (io.ReadCloser, error) {
	resp, err := w.do(ctx, http.MethodPost, "/git-upload-pack", request)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
