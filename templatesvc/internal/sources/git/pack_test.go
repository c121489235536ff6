package git

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// packer writes packs that git would not create.
type packer struct {
	bytes.Buffer
	t *testing.T
}

func newPacker(t *testing.T, objects uint32) *packer {
	p := &packer{t: t}
	p.WriteString("PACK")
	for _, n := range []uint32{2, objects} {
		if err := binary.Write(p, binary.BigEndian, n); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// object writes an object's header, the distance of its base for a delta, and its content.
// It returns the offset of the object.
func (p *packer) object(kind plumbing.ObjectType, size int64, distance int64, write func(w *zlib.Writer)) (at int64) {
	at = int64(p.Len())
	p.header(kind, size)
	if kind == plumbing.OFSDeltaObject {
		text := []byte{byte(distance & 0x7f)}
		for distance >>= 7; distance > 0; distance >>= 7 {
			distance--
			text = append([]byte{byte(distance&0x7f) | 0x80}, text...)
		}
		p.Write(text)
	}
	p.packed(write)
	return at
}

func (p *packer) header(kind plumbing.ObjectType, size int64) {
	b := byte(kind)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	p.WriteByte(b)
}

func (p *packer) packed(write func(w *zlib.Writer)) {
	z := zlib.NewWriter(p)
	write(z)
	if err := z.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// blob writes a blob of zeros, which compress well.
func (p *packer) blob(size int64) int64 {
	return p.object(plumbing.BlobObject, size, 0, func(w *zlib.Writer) {
		if _, err := w.Write(make([]byte, size)); err != nil {
			p.t.Fatal(err)
		}
	})
}

// huge writes a blob of this many MiB of zeros. It compresses one MiB and repeats the
// result: compressing everything would take a minute with the race detector.
func (p *packer) huge(mib int64) {
	at := p.Len()
	p.object(plumbing.BlobObject, mib<<20, 0, func(*zlib.Writer) {})
	p.Truncate(at + 5) // the header of such an object has five bytes
	var one bytes.Buffer
	w, err := flate.NewWriter(&one, flate.BestSpeed)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err = w.Write(make([]byte, 1<<20)); err == nil {
		err = w.Flush()
	}
	p.Write([]byte{0x78, 0x01})
	for range mib {
		p.Write(one.Bytes())
	}
	one.Reset()
	w.Reset(&one)
	if err = errors.Join(err, w.Close()); err != nil {
		p.t.Fatal(err)
	}
	p.Write(one.Bytes())
	sum := uint32(mib<<20%65521)<<16 | 1 // Adler-32 of zeros
	if err := binary.Write(p, binary.BigEndian, sum); err != nil {
		p.t.Fatal(err)
	}
}

// delta writes a delta of the object at base with these claimed sizes.
func (p *packer) delta(base int64, from, to uint64) int64 {
	text := binary.AppendUvarint(binary.AppendUvarint(nil, from), to)
	text = append(text, 0x90|0x80, 1) // copy one byte
	return p.object(plumbing.OFSDeltaObject, int64(len(text)), int64(p.Len())-base, func(w *zlib.Writer) {
		if _, err := w.Write(text); err != nil {
			p.t.Fatal(err)
		}
	})
}

// done returns the pack with its checksum.
func (p *packer) done() *bytes.Reader {
	sum := sha1.Sum(p.Bytes())
	p.Write(sum[:])
	return bytes.NewReader(p.Bytes())
}

// allocated returns the number of bytes allocated so far.
func allocated() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestAPackThatWouldFillTheMemoryIsRefusedBeforeItIsUnpacked(t *testing.T) {
	for name, c := range map[string]struct {
		objects uint32
		write   func(p *packer)
		want    string
	}{
		"a directory of 17 MiB": {1, func(p *packer) {
			p.object(plumbing.TreeObject, 17<<20, 0, func(w *zlib.Writer) { _, _ = w.Write(make([]byte, 17<<20)) })
		}, "has 17 MiB, more than the 16 MiB allowed"},
		"a delta that makes 1 TiB": {2, func(p *packer) { p.delta(p.blob(10), 10, 1<<40) }, "unpacks to 1048576 MiB"},
		"a delta of 1 TiB":         {2, func(p *packer) { p.delta(p.blob(10), 1<<40, 10) }, "unpacks to 1048576 MiB"},
		"a chain of 400 deltas": {401, func(p *packer) {
			at := p.blob(10)
			for range 400 {
				at = p.delta(at, 10, 10)
			}
		}, "more than 300 deep"},
		"deep chains of large files": {181, func(p *packer) {
			first := p.blob(1000)
			for range 2 {
				at := first
				for range 90 {
					at = p.delta(at, 100<<20, 100<<20)
				}
			}
		}, "costs too much to unpack"},
		"more objects than a repository has": {maxObjects + 1, func(*packer) {}, "more than the 2000000 allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPacker(t, c.objects)
			c.write(p)
			pack := p.done()
			before := allocated()
			_, err := checkPack(t.Context(), pack)
			if grown := allocated() - before; grown > 32<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
			if !errs.Is(err, errs.TooLarge) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestARepositoryWithAFileThatIsTooLargeIsRefusedByItsHash(t *testing.T) {
	p := newPacker(t, 1)
	p.huge(256)
	pack := p.done()
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, line("NAK\n"))
			_, _ = io.Copy(w, pack)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, line("# service=git-upload-pack\n")+"0000"+line(strings.Repeat("1", 40)+" refs/heads/main\x00ofs-delta\n")+"0000")
	}))
	defer server.Close()
	spool := t.TempDir()
	before := allocated()
	_, err := Fetch(t.Context(), sources.Request{
		Source: content.TemplateSource{Kind: content.SourceGit, URL: server.URL, Branch: "main"}, Spool: spool, Dialer: sources.Dialer{Idle: time.Minute, Egress: egresstest.Loopback()},
	})
	if !errs.Is(err, errs.TooLarge) || !strings.Contains(errs.MessageOf(err), "the blob ") || !strings.Contains(errs.MessageOf(err), "of the repository has 256 MiB") {
		t.Errorf("%v", err)
	}
	if grown := allocated() - before; grown > 64<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
	if left, _ := os.ReadDir(spool); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestAPackThatIsBrokenIsNoPack(t *testing.T) {
	p := newPacker(t, 2)
	p.blob(1000)
	whole := p.done()
	for name, b := range map[string][]byte{"nothing": nil, "another file": []byte("<html>"), "the second object is missing": p.Bytes(), "cut": p.Bytes()[:20]} {
		if _, err := checkPack(t.Context(), bytes.NewReader(b)); err == nil {
			t.Errorf("%s of %d bytes is taken for a pack", name, whole.Len())
		}
	}
	p = newPacker(t, 1) // it unpacks to more than it claims
	p.object(plumbing.BlobObject, 10, 0, func(w *zlib.Writer) { _, _ = w.Write(make([]byte, 1000)) })
	if _, err := checkPack(t.Context(), p.done()); !errors.Is(err, packfile.ErrInflatedSizeMismatch) {
		t.Errorf("%v", err)
	}
}

// literal returns a delta that produces text from a base of this many bytes, without using
// the base.
func literal(from int, text string) []byte {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(from)), uint64(len(text)))
	return append(append(b, byte(len(text))), text...)
}

// refDelta writes a delta whose base is given by its hash.
func (p *packer) refDelta(base plumbing.Hash, delta []byte) {
	p.header(plumbing.REFDeltaObject, int64(len(delta)))
	p.Write(base[:])
	p.packed(func(w *zlib.Writer) {
		if _, err := w.Write(delta); err != nil {
			p.t.Fatal(err)
		}
	})
}

// text writes a whole object.
func (p *packer) text(kind plumbing.ObjectType, text string) {
	p.object(kind, int64(len(text)), 0, func(w *zlib.Writer) {
		if _, err := io.WriteString(w, text); err != nil {
			p.t.Fatal(err)
		}
	})
}

// unpack checks and indexes a pack like a received one.
func unpack(t *testing.T, pack io.Reader) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	f, err := keep(dir, pack)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := checkPack(t.Context(), f)
	if err != nil {
		return dir, err
	}
	return dir, index(d, f, dir)
}

func TestDeltasOfWhatIsOnlyKnownByItsHashAreBoundedAsOthersAre(t *testing.T) {
	hash := plumbing.ComputeHash
	tree := strings.Repeat("x", 10)
	for name, c := range map[string]struct {
		objects uint32
		write   func(p *packer)
		want    string
	}{
		"a directory of 17 MiB": {2, func(p *packer) {
			p.text(plumbing.TreeObject, tree)
			p.refDelta(hash(plumbing.TreeObject, []byte(tree)), binary.AppendUvarint(binary.AppendUvarint(nil, 10), 17<<20))
		}, "unpacks to 17 MiB, more than the 16 MiB allowed"},
		"a directory of 17 MiB before what it is a delta of": {2, func(p *packer) {
			p.refDelta(hash(plumbing.TreeObject, []byte(tree)), binary.AppendUvarint(binary.AppendUvarint(nil, 10), 17<<20))
			p.text(plumbing.TreeObject, tree)
		}, "unpacks to 17 MiB, more than the 16 MiB allowed"},
		"a directory of 17 MiB by way of a delta": {3, func(p *packer) {
			p.text(plumbing.TreeObject, tree)
			p.refDelta(hash(plumbing.TreeObject, []byte(tree)), literal(10, "other"))
			p.refDelta(hash(plumbing.TreeObject, []byte("other")), binary.AppendUvarint(binary.AppendUvarint(nil, 5), 17<<20))
		}, "unpacks to 17 MiB, more than the 16 MiB allowed"},
		"a directory of 17 MiB behind one": {3, func(p *packer) {
			p.text(plumbing.TreeObject, tree)
			at := int64(p.Len())
			p.refDelta(hash(plumbing.TreeObject, []byte(tree)), literal(10, "other"))
			p.delta(at, 5, 17<<20)
		}, "unpacks to 17 MiB, more than the 16 MiB allowed"},
		"a chain of 400": {401, func(p *packer) {
			before := "0"
			p.text(plumbing.BlobObject, before)
			for i := range 400 {
				base := hash(plumbing.BlobObject, []byte(before))
				next := fmt.Sprint("text ", i)
				p.refDelta(base, literal(len(before), next))
				before = next
			}
		}, "more than 300 deep"},
		"a chain of 400 by way of objects that stand there twice": {602, func(p *packer) {
			before := "0"
			p.text(plumbing.BlobObject, before)
			p.text(plumbing.BlobObject, "1")
			first := hash(plumbing.BlobObject, []byte("1"))
			for i := range 400 {
				base := hash(plumbing.BlobObject, []byte(before))
				next := fmt.Sprint("text ", i)
				p.refDelta(base, literal(len(before), next))
				if i%2 == 1 { // again, with a shorter chain
					p.refDelta(first, literal(1, next))
				}
				before = next
			}
		}, "more than 300 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPacker(t, c.objects)
			c.write(p)
			pack := p.done()
			before := allocated()
			_, err := unpack(t, pack)
			if grown := allocated() - before; grown > 128<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
			if !errs.Is(err, errs.TooLarge) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestDeltasOfWhatIsOnlyKnownByItsHashAreUnpacked(t *testing.T) {
	p := newPacker(t, 4)
	p.refDelta(plumbing.ComputeHash(plumbing.BlobObject, []byte("later")), literal(5, "first")) // of an object that follows
	p.text(plumbing.BlobObject, "later")
	at := int64(p.Len())
	p.refDelta(plumbing.ComputeHash(plumbing.BlobObject, []byte("first")), literal(5, "second"))
	p.object(plumbing.OFSDeltaObject, int64(len(literal(6, "third"))), int64(p.Len())-at, func(w *zlib.Writer) { _, _ = w.Write(literal(6, "third")) })
	dir, err := unpack(t, p.done())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "later", "second", "third"} {
		blob, err := object.GetBlob(open(dir), plumbing.ComputeHash(plumbing.BlobObject, []byte(text)))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		r, err := blob.Reader()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); string(b) != text || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
}

func TestAReceivedPackIsKeptOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	f, err := keep(dir, strings.NewReader("pack"))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := f.Read(b); err != nil || string(b) != "pack" {
		t.Errorf("%q, %v", b, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestADiskWithoutRoomIsNotTheServersFault(t *testing.T) {
	err := broken(&os.PathError{Op: "write", Path: "f", Err: unix.ENOSPC})
	if !errs.Is(err, errs.Exhausted) || !strings.Contains(errs.MessageOf(err), "disk of the templates' content is full") {
		t.Errorf("%v", err)
	}
}
