package blobcache_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestUnknownManifestFieldsAreAccepted(t *testing.T) {
	body := []byte(`{"entries":[{"path":"f","kind":"dir","future":[1,2]}],"more":{}}`)
	s := raw{sum(body): body}
	m, err := open(t, t.TempDir(), s).Manifest(t.Context(), sum(body))
	if err != nil || len(m.Entries) != 1 || m.Entries[0].Path != "f" {
		t.Errorf("%+v, %v", m, err)
	}
}

// raw serves bytes by their hash.
type raw map[string][]byte

func (s raw) Manifest(ctx context.Context, digest string) (io.ReadCloser, error) {
	return s.Blob(ctx, digest)
}

func (s raw) Blob(_ context.Context, hash string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s[hash])), nil
}

// Row reports that it sends only single blobs.
func (raw) Row(context.Context, []string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "one at a time")
}

func (raw) Suspect(context.Context, string) error { return nil }

// Artifact serves content like any other.
func (s raw) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	return s.Blob(ctx, hash)
}

func TestUnsafeManifestIsRejected(t *testing.T) {
	hash := sum([]byte("x"))
	entry := func(path string) string { return `{"path":"` + path + `","size":1,"sha256":"` + hash + `"}` }
	cases := map[string]struct {
		entries string
		kind    errs.Kind
	}{
		"name is not UTF-8":                  {entry("a\xff"), errs.Invalid},
		"path leaves the directory":          {entry("../x"), errs.Invalid},
		"absolute path":                      {entry("/x"), errs.Invalid},
		"control character":                  {entry("a\\u0007"), errs.Invalid},
		"duplicate name":                     {entry("a") + "," + entry("a"), errs.Invalid},
		"file below a file":                  {entry("a") + "," + entry("a/b"), errs.Invalid},
		"link leaves the directory":          {`{"path":"l","kind":"symlink","target":"../../etc"}`, errs.Invalid},
		"device":                             {`{"path":"d","kind":"device"}`, errs.Invalid},
		"setuid mode":                        {`{"path":"s","mode":2541,"size":1,"sha256":"` + hash + `"}`, errs.Invalid},
		"hash is a path":                     {`{"path":"a","size":1,"sha256":"../../x"}`, errs.Invalid},
		"file too large":                     {`{"path":"a","size":1099511627776,"sha256":"` + hash + `"}`, errs.TooLarge},
		"names differ only in case":          {entry("A") + "," + entry("a"), 0},
		"names differ only in normalisation": {entry("\u00e9") + "," + entry("e\u0301"), 0},
	}
	for name, c := range cases {
		body := []byte(`{"entries":[` + c.entries + `]}`)
		_, err := open(t, t.TempDir(), raw{sum(body): body}).Manifest(t.Context(), sum(body))
		if c.kind == 0 && err != nil || c.kind != 0 && !errs.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFetchReadsOlderManifestsOnce(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	before, after := content.Manifest{}, []content.ManifestEntry{}
	for i := range 30 {
		pieces := random(byte(i), 2, 1000)
		before.Entries = append(before.Entries, s.large(fmt.Sprint("r", i), pieces...))
		after = append(after, s.large(fmt.Sprint("r", i), append(pieces, []byte{byte(i)})...))
	}
	for i := range 2000 {
		before.Entries = append(before.Entries, content.ManifestEntry{Path: fmt.Sprint(i), Kind: content.FileDir})
	}
	digest := s.manifest(t, before)
	s.published(t, open(t, dir, s), before.Entries...)
	s.take()
	c := open(t, dir, s) // knows the version only from the disk
	c.Warm()
	fi, err := os.Stat(filepath.Join(dir, digest[:2], digest))
	if err != nil {
		t.Fatal(err)
	}
	began := bytesRead(t)
	if err := c.Fetch(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	if read := bytesRead(t) - began; read > 5*fi.Size() {
		t.Errorf("%d bytes were read, the list has %d", read, fi.Size())
	}
	if n := len(s.take()); n != len(after) {
		t.Errorf("asked for %d chunks", n)
	}
}
