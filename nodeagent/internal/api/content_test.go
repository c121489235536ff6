package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

// failing is a cache whose versions fail with these errors in order.
type failing []error

func (failing) Status(int) client.Cache { return client.Cache{} }

func (f failing) WarmUp(_ context.Context, digests []string) []blobcache.WarmResult {
	all := make([]blobcache.WarmResult, len(digests))
	for n, d := range digests {
		all[n] = blobcache.WarmResult{Digest: d, Err: f[n]}
	}
	return all
}

func TestWarmReportsFullDisk(t *testing.T) {
	full := errs.Wrap("blobs.Fetch", errs.WrapAs(errs.Exhausted, "blobs.write", syscall.ENOSPC))
	content := failing{full, errs.New(errs.Exhausted, "too much is asked for at once"), errs.WrapAs(errs.Unavailable, "x", errors.New("10.0.0.1"))}
	w := httptest.NewRecorder()
	warmCache(content).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/cache/warm", strings.NewReader(`{"digests":["a","b","c"]}`)))
	var answer client.WarmAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Versions) != 3 {
		t.Fatalf("%s, %v", w.Body, err)
	}
	got := answer.Versions
	if !strings.HasPrefix(got[0].Error, "the node's disk is full: ") || got[1].Error != "too much is asked for at once" || got[2].Error != errs.MessageOf(nil) {
		t.Errorf("got %+v", got)
	}
}
