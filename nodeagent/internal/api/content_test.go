package api

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

// failing is a cache whose versions fail with these errors in order.
type failing []error

func (failing) Status(int) blobcache.Status { return blobcache.Status{} }

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
	answer, err := warmCache(content)(t.Context(), client.WarmRequest{Digests: []string{"a", "b", "c"}})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.(client.WarmAnswer).Versions
	if !strings.HasPrefix(got[0].Error, "the node's disk is full: ") || got[1].Error != "too much is asked for at once" || got[2].Error != errs.MessageOf(nil) {
		t.Errorf("got %+v", got)
	}
}
