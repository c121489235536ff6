package templatesvc_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
)

func TestALargeFileIsServedWholeAndInChunks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	large, err := io.ReadAll(io.LimitReader(rand.NewChaCha8([32]byte{}), 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	w.write("world.dat", string(large), 0o644)
	s, _ := w.start("a")
	h, _ := w.head()
	c := clientOf(s)
	whole, entry := contentOf(t, c, h.Digest, "world.dat")
	if whole != string(large) || len(entry.Chunks) < 2 {
		t.Errorf("%d bytes of %d in %d chunks", len(whole), len(large), len(entry.Chunks))
	}
	var joined bytes.Buffer
	for _, chunk := range entry.Chunks {
		r, err := c.Blob(t.Context(), chunk.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&joined, r); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(joined.Bytes(), large) {
		t.Error("the chunks joined are not the file")
	}
}

// get requests a blob like any HTTP client.
func get(t *testing.T, url, encoding, ranges string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Accept-Encoding", encoding)
	if ranges != "" {
		r.Header.Set("Range", ranges)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

func TestABlobIsServedAsItLies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := strings.Repeat("level=1\n", 10_000)
	w.write("text", text, 0o644)
	w.write("tiny", "0123456789", 0o644)
	s, _ := w.start("a")
	base := s.URL() + "/v1/blobs/"
	sum := content.DigestOf([]byte(text))
	resp, packed := get(t, base+sum, "zstd", "")
	if resp.Header.Get("Content-Encoding") != "zstd" || len(packed) > len(text)/2 || resp.ContentLength != int64(len(packed)) ||
		resp.Header.Get(client.HeaderSize) != strconv.Itoa(len(text)) || resp.Header.Get("ETag") != `"`+sum+`.zst"` {
		t.Errorf("compressed: %d bytes, %v", len(packed), resp.Header)
	}
	resp, raw := get(t, base+sum, "identity", "")
	if string(raw) != text || resp.Header.Get("Content-Encoding") != "" || resp.ContentLength != int64(len(text)) || resp.Header.Get("ETag") != `"`+sum+`"` {
		t.Errorf("raw: %d bytes, %v", len(raw), resp.Header)
	}
	if resp, part := get(t, base+content.DigestOf([]byte("0123456789")), "identity", "bytes=3-5"); resp.StatusCode != http.StatusPartialContent || string(part) != "345" {
		t.Errorf("a part: %s, %q", resp.Status, part)
	}
}

func TestSeveralBlobsComeInOneAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noise, err := io.ReadAll(io.LimitReader(rand.NewChaCha8([32]byte{}), 300_000))
	if err != nil {
		t.Fatal(err)
	}
	contents := []string{strings.Repeat("level=1\n", 100_000), string(noise), "tiny", strings.Repeat("text ", 50_000)}
	var sums []string
	for n, text := range contents {
		w.write(strconv.Itoa(n), text, 0o644)
		sums = append(sums, content.DigestOf([]byte(text)))
	}
	s, _ := w.start("a")
	w.head()
	c := clientOf(s)
	read := func(sums ...string) (string, error) {
		r, err := c.Row(t.Context(), sums)
		if err != nil {
			return "", err
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return string(b), err
	}
	for range 3 { // with pooled decoders
		if got, err := read(sums...); err != nil || got != strings.Join(contents, "") {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	nobody := content.DigestOf([]byte("nobody has it"))
	if got, err := read(sums[1], sums[0], nobody, sums[2]); err != nil || got != contents[1]+contents[0] {
		t.Errorf("up to one that is missing: %d bytes, %v", len(got), err)
	}
	for what, bad := range map[string]struct {
		sums []string
		kind errs.Kind
	}{
		"a missing one first": {[]string{nobody, sums[0]}, errs.NotFound},
		"nothing":             {nil, errs.Invalid},
		"no hash":             {[]string{"../../etc/passwd"}, errs.Malformed},
		"too many":            {slices.Repeat(sums[:1], client.MaxRow+1), errs.Invalid},
	} {
		if _, err := read(bad.sums...); !errs.Is(err, bad.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := read(slices.Repeat(sums[2:3], client.MaxRow)...); err != nil || got != strings.Repeat("tiny", client.MaxRow) {
		t.Errorf("as many as may be: %d bytes, %v", len(got), err)
	}
}

func TestACorruptBlobIsNotServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	s, _ := w.start("a")
	sum := content.DigestOf([]byte("one"))
	if err := os.WriteFile(filepath.Join(w.blobs, sum[:2], sum), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clientOf(s).Blob(t.Context(), sum); !errs.Is(err, errs.NotFound) {
		t.Errorf("got %v", err)
	}
	if err := clientOf(s).Suspect(t.Context(), sum); !errs.Is(err, errs.NotFound) {
		t.Errorf("a suspicion: %v", err)
	}
}

func TestContentThatNothingRefersToIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	w.write("shared", "shared", 0o644)
	s, _ := w.start("a")
	c := clientOf(s)
	first, _ := w.head()
	w.write("f", "two", 0o644)
	second := w.await("moved", func(h content.TemplateHead, _ bool) bool { return h.Digest != first.Digest })
	if r, err := c.Collect(t.Context()); err != nil || r.Removed != 0 {
		t.Errorf("with all versions there: %+v, %v", r, err)
	}
	if err := c.DeleteVersion(t.Context(), ref, first.Digest, client.Asked{Author: "me"}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Collect(t.Context()); err != nil || r.Removed != 2 || r.Marked != 3 {
		t.Errorf("without the first version: %+v, %v; its manifest and one file should go", r, err)
	}
	for name, want := range map[string]string{"f": "two", "shared": "shared"} {
		if got, _ := contentOf(t, c, second.Digest, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if _, err := c.Manifest(t.Context(), first.Digest); !errs.Is(err, errs.NotFound) {
		t.Errorf("the deleted version: %v", err)
	}
	w.write("f", "one", 0o644) // removed content can be published again
	third := w.await("moved", func(h content.TemplateHead, _ bool) bool { return h.Digest == first.Digest })
	if got, _ := contentOf(t, c, third.Digest, "f"); got != "one" {
		t.Errorf("published anew, it is %q", got)
	}
}
