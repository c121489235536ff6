package templatesvc_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client/s3test"
)

// newBucket starts an S3 server and returns its bucket.
func newBucket(t *testing.T) (*s3test.Server, *templatesvc.Bucket) {
	t.Helper()
	server, err := s3test.New()
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(server.Handler)
	t.Cleanup(listening.Close)
	return server, &templatesvc.Bucket{
		Endpoint: listening.URL, Bucket: s3test.Bucket, Prefix: "orrery/blobs", PathStyle: true, AccessKey: "key", SecretKey: "secret", CacheBytes: 1 << 30,
	}
}

func keysOf(t *testing.T, s *s3test.Server, sum string) (n int) {
	t.Helper()
	all, err := s.Keys()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if strings.Contains(k, sum) {
			n++
		}
	}
	return n
}

// forgetDirectories removes the stored status of the template directories of dead replicas.
func (w *world) forgetDirectories() {
	w.t.Helper()
	await.That(w.t, "no directory is remembered", func() string {
		all, _, err := store.List(w.t.Context(), w.c, keys.DirectoryMemories())
		for _, d := range all {
			if err == nil {
				_, err = w.c.Commit(w.t.Context(), store.Txn{Writes: []store.Write{store.Remove(keys.DirectoryMemory(d.ID, d.Replica), d.ModRev)}})
			}
		}
		return await.Unless(err == nil && len(all) == 0, "%d, %v", len(all), err)
	})
}

func TestReplicasOnOneBucketServeTheSameAfterTheDeathOfOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server, bucket := newBucket(t)
	b, _ := w.startWith(templatesvc.Config{Replica: "b", BlobDir: t.TempDir(), Bucket: bucket, Copies: 2})
	w.write("world.dat", large(t), 0o644)
	w.write("motd", "hello", 0o644)
	w.write("empty", "", 0o644)
	_, stop := w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs, Bucket: bucket, Copies: 2})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	stop()
	if err := os.RemoveAll(w.blobs); err != nil {
		t.Fatal(err)
	}
	w.awaitContent(b, h.Digest, "world.dat", large(t))
	if got, _ := contentOf(t, clientOf(b), h.Digest, "motd"); got != "hello" {
		t.Errorf("a file is %q", got)
	}
	if n := keysOf(t, server, content.DigestOf([]byte("hello"))); n != 1 {
		t.Errorf("a file lies there %d times: replicas copied what they share", n)
	}
	c := clientOf(b)
	w.forgetDirectories()
	if err := c.DeleteTemplate(t.Context(), ref, client.Asked{Author: "me"}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Collect(t.Context()); err != nil || r.Removed == 0 {
		t.Errorf("removed %+v, %v", r, err)
	}
	if n := keysOf(t, server, content.DigestOf([]byte("hello"))); n != 0 {
		t.Errorf("what nothing refers to lies there %d times", n)
	}
}

func TestContentOfADirectoryIsMovedToABucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server, bucket := newBucket(t)
	w.write("world.dat", large(t), 0o644)
	w.write("motd", "hello", 0o644)
	_, stop := w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	stop()
	_, entry := func() (string, content.ManifestEntry) {
		a, stop := w.startWith(templatesvc.Config{Replica: "a", BlobDir: w.blobs, Bucket: bucket})
		defer stop()
		c := clientOf(a)
		got, entry := contentOf(t, c, h.Digest, "world.dat") // also before it was copied to the bucket
		if got != large(t) {
			t.Errorf("%d bytes", len(got))
		}
		await.That(t, "the content in the bucket", func() string {
			return await.Unless(keysOf(t, server, content.DigestOf([]byte("hello"))) == 1, "not there yet")
		})
		_, err := c.Replicate(t.Context(), h.Digest) // copies all of it
		if err != nil {
			t.Fatal(err)
		}
		return got, entry
	}()
	if err := os.RemoveAll(w.blobs); err != nil {
		t.Fatal(err)
	}
	b, _ := w.startWith(templatesvc.Config{Replica: "b", BlobDir: t.TempDir(), Bucket: bucket})
	if got, again := contentOf(t, clientOf(b), h.Digest, "world.dat"); got != large(t) || len(again.Chunks) != len(entry.Chunks) {
		t.Errorf("%d bytes", len(got))
	}
}

func TestKeysInAnEndpointAreRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := templatesvc.New(templatesvc.Config{
		Store: w.c, BlobDir: w.blobs, ClusterSecret: secret, Replica: "a", Log: slog.New(slog.DiscardHandler),
		Bucket: &templatesvc.Bucket{Endpoint: "https://me:hidden@s3.example.org", Bucket: "bucket", CacheBytes: 1},
	})
	if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "blobs.s3.endpoint" || strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v", err)
	}
}
