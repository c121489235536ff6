package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/orreryhq/orrery/libs/errs"
)

// packer writes packs that no git would write.
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

// object writes an object's header, its base's distance for a delta, and its content; at
// is where it stands.
func (p *packer) object(kind plumbing.ObjectType, size int64, distance int64, write func(w *zlib.Writer)) (at int64) {
	at = int64(p.Len())
	b := byte(kind)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	p.WriteByte(b)
	if kind == plumbing.OFSDeltaObject {
		text := []byte{byte(distance & 0x7f)}
		for distance >>= 7; distance > 0; distance >>= 7 {
			distance--
			text = append([]byte{byte(distance&0x7f) | 0x80}, text...)
		}
		p.Write(text)
	}
	z := zlib.NewWriter(p)
	write(z)
	if err := z.Close(); err != nil {
		p.t.Fatal(err)
	}
	return at
}

// blob is one of zeros, which pack well.
func (p *packer) blob(size int64) int64 {
	return p.object(plumbing.BlobObject, size, 0, func(w *zlib.Writer) {
		zeros := make([]byte, 1<<20)
		for left := size; left > 0; left -= int64(len(zeros)) {
			if _, err := w.Write(zeros[:min(left, int64(len(zeros)))]); err != nil {
				p.t.Fatal(err)
			}
		}
	})
}

// delta says that it makes so many bytes of as many of what stands at base.
func (p *packer) delta(base int64, from, to uint64) int64 {
	text := binary.AppendUvarint(binary.AppendUvarint(nil, from), to)
	text = append(text, 0x90|0x80, 1) // copy one byte
	return p.object(plumbing.OFSDeltaObject, int64(len(text)), int64(p.Len())-base, func(w *zlib.Writer) {
		if _, err := w.Write(text); err != nil {
			p.t.Fatal(err)
		}
	})
}

// done is the pack with its checksum.
func (p *packer) done() *bytes.Reader {
	sum := sha1.Sum(p.Bytes())
	p.Write(sum[:])
	return bytes.NewReader(p.Bytes())
}

// allocated is how much was allocated ever, in bytes.
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
		"a file of 256 MiB in a small pack": {1, func(p *packer) { p.blob(256 << 20) }, plumbing.ComputeHash(plumbing.BlobObject, make([]byte, 256<<20)).String() + " of the repository has 256 MiB, more than the 128 MiB allowed"},
		"a directory of 64 MiB": {1, func(p *packer) {
			p.object(plumbing.TreeObject, 64<<20, 0, func(w *zlib.Writer) { _, _ = w.Write(make([]byte, 64<<20)) })
		}, "has 64 MiB, more than the 16 MiB allowed"},
		"a delta that makes 1 TiB": {2, func(p *packer) { p.delta(p.blob(10), 10, 1<<40) }, "unpacks to 1048576 MiB"},
		"a delta of 1 TiB":         {2, func(p *packer) { p.delta(p.blob(10), 1<<40, 10) }, "unpacks to 1048576 MiB"},
		"a chain of 400 deltas": {401, func(p *packer) {
			at := p.blob(10)
			for range 400 {
				at = p.delta(at, 10, 10)
			}
		}, "more than 300 deep"},
		"deep chains of large files": {1001, func(p *packer) {
			first := p.blob(1000)
			for range 10 {
				at := first
				for range 100 {
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
			err := checkPack(t.Context(), pack)
			if grown := allocated() - before; grown > 32<<20 {
				t.Errorf("%d MiB were allocated", grown>>20)
			}
			if !errs.Is(err, errs.TooLarge) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestAPackThatIsBrokenIsNoPack(t *testing.T) {
	p := newPacker(t, 2)
	p.blob(1000)
	whole := p.done()
	for name, b := range map[string][]byte{"nothing": nil, "another file": []byte("<html>"), "the second object is missing": p.Bytes(), "cut": p.Bytes()[:20]} {
		if err := checkPack(t.Context(), bytes.NewReader(b)); err == nil {
			t.Errorf("%s of %d bytes is taken for a pack", name, whole.Len())
		}
	}
	p = newPacker(t, 1) // it unpacks to more than it says
	p.object(plumbing.BlobObject, 10, 0, func(w *zlib.Writer) { _, _ = w.Write(make([]byte, 1000)) })
	if err := checkPack(t.Context(), p.done()); !errors.Is(err, packfile.ErrInflatedSizeMismatch) {
		t.Errorf("%v", err)
	}
}

func TestAReceivedPackIsKeptOnTheDiskAndGoes(t *testing.T) {
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
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
