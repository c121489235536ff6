package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

func TestLimitsHoldInEveryFormat(t *testing.T) {
	many := make([]member, 11)
	for i := range many {
		many[i] = member{name: fmt.Sprint("f", i)}
	}
	large := make([]member, 5)
	for i := range large {
		large[i] = member{name: fmt.Sprint("f", i), content: strings.Repeat("x", 1000)}
	}
	for _, c := range []struct {
		rule, want string
		members    []member
	}{
		{"too many entries", "more than 10 entries", many},
		{"directories that only follow from paths count", "more than 10 files and directories", []member{{name: strings.Repeat("d/", 11) + "x"}}},
		{"too large an entry", "the most an entry may have", []member{{name: "f", content: strings.Repeat("x", 1025)}}},
		{"too much in all", "holds more than", large},
	} {
		plain := tarOf(t, c.members...)
		for format, b := range map[archive.Format][]byte{
			archive.Zip: zipOf(t, c.members...), archive.Tar: plain, archive.TarGzip: gz(t, plain), archive.TarZstd: zst(t, plain),
		} {
			t.Run(c.rule+" in "+string(format), func(t *testing.T) { refused(t, b, small(), errs.TooLarge, c.want) })
		}
	}
	first := member{name: "a", content: strings.Repeat("x", 1000)}
	linked := []member{first}
	for i := range 5 {
		linked = append(linked, member{name: fmt.Sprint("h", i), flag: tar.TypeLink, link: "a"})
	}
	refused(t, tarOf(t, linked...), small(), errs.TooLarge, "holds more than")
}

// zeros returns a stream of n zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestABombIsRefusedByWhatItUnpacksTo(t *testing.T) {
	const inside = 100 << 20
	var zipped, tarred, compressed bytes.Buffer
	zw := zip.NewWriter(&zipped)
	f, err := zw.Create("zeros")
	if err == nil {
		_, err = io.Copy(f, zeros(inside))
	}
	if err = errors.Join(err, zw.Close()); err != nil {
		t.Fatal(err)
	}
	gw := gzip.NewWriter(&tarred)
	zs, err := zstd.NewWriter(&compressed)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(io.MultiWriter(gw, zs))
	err = tw.WriteHeader(&tar.Header{Name: "zeros", Size: inside, Mode: 0o644})
	if err == nil {
		_, err = io.Copy(tw, zeros(inside))
	}
	if err = errors.Join(err, tw.Close(), gw.Close(), zs.Close()); err != nil {
		t.Fatal(err)
	}
	for format, b := range map[archive.Format][]byte{
		archive.Zip: zipped.Bytes(), archive.TarGzip: tarred.Bytes(), archive.TarZstd: compressed.Bytes(),
	} {
		t.Run(string(format), func(t *testing.T) {
			var seen int64
			o := options()
			o.Spool = t.TempDir()
			err := archive.Read(t.Context(), bytes.NewReader(b), o, func(_ archive.Entry, r io.Reader) error {
				n, err := io.Copy(io.Discard, r)
				seen += n
				return err
			})
			told(t, err, errs.TooLarge, "as bombs do")
			if seen > 65<<20 {
				t.Errorf("%d MiB came out before it was refused", seen>>20)
			}
		})
	}
}

func TestASparseFileCountsAsWhatItUnpacksTo(t *testing.T) {
	// The old GNU sparse format: a hole of 1 TiB followed by one byte.
	h := make([]byte, 512)
	copy(h, "sparse")
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], "00000000001\x0000000000000\x00")
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	big := func(at int, n uint64) { h[at] = 0x80; binary.BigEndian.PutUint64(h[at+4:], n) }
	big(386, 1<<40-1)
	copy(h[398:], "00000000001\x00")
	big(483, 1<<40)
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	b := append(append(h, "x"...), make([]byte, 511+1024)...)
	refused(t, b, options(), errs.TooLarge, "the most an entry may have")
}

func TestAWindowTooLargeToHoldIsRefused(t *testing.T) {
	// A frame that requires a window of 2 GiB: magic, descriptor, window, an empty last
	// block.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00}
	refused(t, frame, options(), errs.TooLarge, "--long=26 or less")
}
