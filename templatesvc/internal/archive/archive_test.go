package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

// member is an entry of a test's archive, in both formats' words.
type member struct {
	name, content, link string
	flag                byte // tar's
	mode                int64
	size                int64 // of tar; 0: of content
	devmajor            int64
}

func tarOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{
			Name: m.name, Typeflag: cmp.Or(m.flag, byte(tar.TypeReg)), Linkname: m.link, Mode: cmp.Or(m.mode, 0o644),
			Size: cmp.Or(m.size, int64(len(m.content))), Devmajor: m.devmajor, Format: tar.FormatGNU,
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(os.FileMode(cmp.Or(m.mode, 0o644)).Perm())
		content := m.content
		switch m.flag {
		case tar.TypeSymlink:
			h.SetMode(os.ModeSymlink | 0o777)
			content = m.link
		case tar.TypeChar:
			h.SetMode(os.ModeDevice | os.ModeCharDevice)
		case tar.TypeFifo:
			h.SetMode(os.ModeNamedPipe)
		case tar.TypeDir:
			h.SetMode(os.ModeDir | 0o755)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// unpacked is what an archive gave: entries in words, and their content.
func unpack(t testing.TB, b []byte, o archive.Options) (told []string, err error) {
	t.Helper()
	o.Spool = t.TempDir()
	err = archive.Read(t.Context(), bytes.NewReader(b), o, func(e archive.Entry, r io.Reader) error {
		content, err := io.ReadAll(r)
		told = append(told, fmt.Sprintf("%s %q %o %s%s %d %q", e.Path, e.Kind, e.Mode, e.Target, e.Same, e.Size, content))
		return err
	})
	if left, _ := os.ReadDir(o.Spool); len(left) > 0 {
		t.Errorf("the spool still holds %v", left)
	}
	return told, err
}

func options() archive.Options { return archive.Options{Limits: archive.DefaultLimits()} }

// small are limits a test reaches without much data.
func small() archive.Options {
	return archive.Options{Limits: archive.Limits{TotalBytes: 4096, EntryBytes: 1024, Entries: 10, Ratio: 200}}
}

func TestEveryFormatGivesTheSameEntries(t *testing.T) {
	members := []member{
		{name: "conf/", flag: tar.TypeDir, mode: 0o755},
		{name: "conf/a.yml", content: "a: 1\n"},
		{name: "run.sh", content: "#!/bin/sh\n", mode: 0o755},
		{name: "link", flag: tar.TypeSymlink, link: "conf/a.yml"},
	}
	want := `[conf "dir" 755  0 "" conf/a.yml "" 644  5 "a: 1\n" run.sh "" 755  10 "#!/bin/sh\n" link "link" 0 conf/a.yml 0 ""]`
	plain := tarOf(t, members...)
	for format, b := range map[archive.Format][]byte{
		archive.Zip: zipOf(t, members...), archive.Tar: plain, archive.TarGzip: gz(t, plain), archive.TarZstd: zst(t, plain),
	} {
		t.Run(string(format), func(t *testing.T) {
			for _, o := range []archive.Options{options(), {Format: format, Limits: archive.DefaultLimits()}} {
				if told, err := unpack(t, b, o); err != nil || fmt.Sprint(told) != want {
					t.Errorf("%v %v\nwant %s", told, err, want)
				}
			}
		})
	}
}

func TestAZipIsReadFromItsFileWithoutACopy(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.zip")
	if err := os.WriteFile(name, zipOf(t, member{name: "a", content: "1"}), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := options()
	o.Spool = filepath.Join(t.TempDir(), "does", "not", "exist")
	n := 0
	if err := archive.Read(t.Context(), f, o, func(archive.Entry, io.Reader) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
}

// hostile are names and kinds both families of formats can tell.
var hostile = []struct {
	rule    string
	members []member
	want    string
}{
	{"a path out of the tree", []member{{name: "../x"}}, "leads out of the template by .."},
	{"a path out and in again", []member{{name: "a/../../x"}}, "leads out of the template by .."},
	{"a path that stays inside by ..", []member{{name: "a/../x"}}, "leads out of the template by .."},
	{"an absolute path", []member{{name: "/etc/passwd"}}, "is an absolute path"},
	{"a drive", []member{{name: `C:/x`}}, "begins with a drive"},
	{"a drive and backslashes", []member{{name: `C:\x`}}, `has a \ in its name`},
	{"backslashes that lead out", []member{{name: `a\..\..\x`}}, `has a \ in its name`},
	{"a control character", []member{{name: "a\nb"}}, "has a control character"},
	{"a name of 256 bytes", []member{{name: strings.Repeat("x", 256)}}, "longer than 255 bytes"},
	{"65 directories", []member{{name: strings.Repeat("d/", 65) + "x"}}, "lies too deep"},
	{"a file twice", []member{{name: "a"}, {name: "./a"}}, `"a" stands in the archive twice`},
	{"a directory that is a file", []member{{name: "a"}, {name: "a/b"}}, `"a" is both a file and a directory`},
	{"a file that is a directory", []member{{name: "a/b"}, {name: "a"}}, `"a" stands in the archive twice`},
	{"names that differ in case", []member{{name: "ReadMe"}, {name: "README"}}, `"ReadMe" and "README" differ only in case`},
	{"directories that differ in case", []member{{name: "Conf/a"}, {name: "conf/b"}}, `"Conf" and "conf" differ only in case`},
	{"letters one system holds for one", []member{{name: "\u212a"}, {name: "k"}}, "differ only in case"},
	{"a link to an absolute path", []member{{name: "l", flag: tar.TypeSymlink, link: "/etc/passwd"}}, `the link "l" leads out of the template, to "/etc/passwd"`},
	{"a link out", []member{{name: "a/l", flag: tar.TypeSymlink, link: "../../x"}}, `the link "a/l" leads out`},
	{"a link out by backslashes", []member{{name: "l", flag: tar.TypeSymlink, link: `..\x`}}, "leads out"},
	{"a link to nothing", []member{{name: "l", flag: tar.TypeSymlink, link: ""}}, "leads out"},
	{
		"links that lead out one through the other",
		[]member{{name: "p/q/up", flag: tar.TypeSymlink, link: "../.."}, {name: "p/q/evil", flag: tar.TypeSymlink, link: "up/../x"}},
		`the link "p/q/evil" leads out`,
	},
	{
		"the same, the other way round",
		[]member{{name: "p/q/evil", flag: tar.TypeSymlink, link: "up/../x"}, {name: "p/q/up", flag: tar.TypeSymlink, link: "../.."}},
		`the link "p/q/evil" leads out`,
	},
	{"a circle of links", []member{{name: "a", flag: tar.TypeSymlink, link: "b"}, {name: "b", flag: tar.TypeSymlink, link: "a"}}, "leads in a circle"},
	{"a file through a link", []member{{name: "l", flag: tar.TypeSymlink, link: "d"}, {name: "l/x"}}, `"l/x" lies below the link "l"`},
	{"a link in place of a directory", []member{{name: "l/x"}, {name: "l", flag: tar.TypeSymlink, link: "d"}}, `"l" stands in the archive twice`},
	{"a device", []member{{name: "d", flag: tar.TypeChar, devmajor: 1}}, "a device"},
	{"a pipe", []member{{name: "p", flag: tar.TypeFifo}}, "a pipe"},
}

func TestHostileEntriesAreRefusedByName(t *testing.T) {
	for _, c := range hostile {
		plain := tarOf(t, c.members...)
		for format, b := range map[archive.Format][]byte{archive.Zip: zipOf(t, c.members...), archive.Tar: plain, archive.TarGzip: gz(t, plain)} {
			t.Run(c.rule+" in "+string(format), func(t *testing.T) { refused(t, b, options(), errs.Malformed, c.want) })
		}
	}
}

func TestWhatOnlyTarsHoldIsRefusedByName(t *testing.T) {
	for rule, c := range map[string]struct {
		members []member
		want    string
	}{
		"a hard link out":            {[]member{{name: "h", flag: tar.TypeLink, link: "../../etc/passwd"}}, "leads out of the archive"},
		"a hard link to the root":    {[]member{{name: "h", flag: tar.TypeLink, link: "/etc/passwd"}}, "leads out of the archive"},
		"a hard link to what comes":  {[]member{{name: "h", flag: tar.TypeLink, link: "a"}, {name: "a"}}, "no file before it"},
		"a hard link to a link":      {[]member{{name: "l", flag: tar.TypeSymlink, link: "a"}, {name: "h", flag: tar.TypeLink, link: "l"}}, "no file before it"},
		"a hard link to itself":      {[]member{{name: "h", flag: tar.TypeLink, link: "h"}}, "no file before it"},
		"a block device":             {[]member{{name: "d", flag: tar.TypeBlock, devmajor: 8}}, "a device"},
		"a kind nobody knows":        {[]member{{name: "d", flag: tar.TypeCont}}, "of a kind templates do not have"},
		"a name that is not UTF-8":   {[]member{{name: "a\xff"}}, "not UTF-8"},
		"a target that is not UTF-8": {[]member{{name: "l", flag: tar.TypeSymlink, link: "\xff"}}, "leads out"},
	} {
		t.Run(rule, func(t *testing.T) { refused(t, tarOf(t, c.members...), options(), errs.Malformed, c.want) })
	}
}

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

// zeros is a stream of n of them.
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
	// GNU's old format: a hole of 1 TiB with a byte behind it.
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

func TestAZipThatLiesAboutSizesIsRefused(t *testing.T) {
	content := strings.Repeat("all work and no play ", 100)
	b := zipOf(t, member{name: "a", content: content})
	at := bytes.LastIndex(b, []byte("PK\x01\x02"))
	for rule, size := range map[string]uint32{"smaller than it is": 10, "larger than it is": 5000} {
		t.Run(rule, func(t *testing.T) {
			lying := bytes.Clone(b)
			binary.LittleEndian.PutUint32(lying[at+24:], size)
			refused(t, lying, options(), errs.Malformed, `at "a"`)
		})
	}
	t.Run("too large to be allowed", func(t *testing.T) {
		lying := bytes.Clone(b)
		binary.LittleEndian.PutUint32(lying[at+24:], 1<<30)
		refused(t, lying, options(), errs.TooLarge, "the most an entry may have")
	})
	t.Run("a wrong checksum", func(t *testing.T) {
		lying := bytes.Clone(b)
		lying[at+16] ^= 1
		refused(t, lying, options(), errs.Malformed, "is damaged")
	})
	t.Run("more entries than can be", func(t *testing.T) {
		lying := bytes.Clone(b)
		binary.LittleEndian.PutUint16(lying[len(lying)-12:], 1<<16-2)
		refused(t, lying, options(), errs.TooLarge, "more than 50000 entries")
	})
}

func TestAZipThatIsNoneIsRefused(t *testing.T) {
	good := zipOf(t, member{name: "a", content: "hello"})
	encrypted := bytes.Clone(good)
	encrypted[bytes.LastIndex(good, []byte("PK\x01\x02"))+8] |= 1
	method := bytes.Clone(good)
	method[bytes.LastIndex(good, []byte("PK\x01\x02"))+10] = 99
	parts := bytes.Clone(good)
	parts[len(good)-18] = 1
	page := bytes.ReplaceAll(good, []byte("a"), []byte("\x84"))
	for rule, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing at all":             {nil, "is empty (0 bytes)"},
		"a part only":                {good[:len(good)-10], "breaks off"},
		"its first bytes only":       {good[:8], "breaks off"},
		"encrypted":                  {encrypted, "is encrypted"},
		"an unknown method":          {method, "compressed by method 99"},
		"one of several parts":       {parts, "one part of several"},
		"something before it":        {append([]byte("PK\x03\x04 hello"), good...), "something stands before"},
		"a program before it":        {append([]byte("MZ program"), good...), "no archive that can be read"},
		"a name in an old code page": {page, "old code page"},
		"garbage":                    {[]byte(strings.Repeat("garbage ", 100)), "no archive that can be read"},
		"a page about an error":      {[]byte("<html><body>404</body></html>"), "no archive that can be read"},
	} {
		t.Run(rule, func(t *testing.T) { refused(t, c.b, options(), errs.Malformed, c.want) })
	}
}

func TestATarThatBreaksOffIsRefused(t *testing.T) {
	plain := tarOf(t, member{name: "a", content: strings.Repeat("x", 700)}, member{name: "b", content: "2"})
	packed, zipped := gz(t, plain), zst(t, plain)
	wrong := bytes.Clone(packed)
	wrong[len(wrong)-5] ^= 1
	for rule, c := range map[string]struct {
		b    []byte
		want string
	}{
		"in a header":              {plain[:300], "breaks off"},
		"in an entry":              {plain[:1000], "breaks off"},
		"between two entries":      {plain[:1536], "breaks off"},
		"before its end":           {plain[:len(plain)-1024], "breaks off"},
		"in its compression":       {packed[:len(packed)-20], "broke off"},
		"before the last checksum": {packed[:len(packed)-4], "broke off"},
		"in zstd":                  {zipped[:len(zipped)-20], "broke off"},
		"a wrong checksum":         {wrong, "is damaged"},
		"garbage behind it":        {append(bytes.Clone(packed), "garbage and more of it"...), "is damaged"},
	} {
		t.Run(rule, func(t *testing.T) {
			format := archive.Tar
			if c.b[0] == 0x1f {
				format = archive.TarGzip
			} else if c.b[0] == 0x28 {
				format = archive.TarZstd
			}
			refused(t, c.b, archive.Options{Format: format, Limits: archive.DefaultLimits()}, errs.Malformed, c.want)
		})
	}
}

func TestAWindowTooLargeToHoldIsRefused(t *testing.T) {
	// A frame that asks for 2 GiB: magic, descriptor, window, an empty last block.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00}
	refused(t, frame, options(), errs.TooLarge, "--long=26 or less")
}

func TestOnlyPermissionsAreKeptOfAMode(t *testing.T) {
	told, err := unpack(t, tarOf(t, member{name: "s", mode: 0o6755}, member{name: "d", flag: tar.TypeDir, mode: 0o1777}), options())
	if err != nil || fmt.Sprint(told) != `[s "" 755  0 "" d "dir" 777  0 ""]` {
		t.Errorf("%v %v", told, err)
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	if _, err := w.CreateRaw(&zip.FileHeader{Name: "dos"}); err != nil { // as systems without modes write it
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if told, err := unpack(t, b.Bytes(), options()); err != nil || fmt.Sprint(told) != `[dos "" 644  0 ""]` {
		t.Errorf("%v %v", told, err)
	}
}

func TestHarmlessOdditiesAreRead(t *testing.T) {
	b := tarOf(
		t, member{name: "./", flag: tar.TypeDir}, member{name: "./a", content: "1"}, member{name: "d/", flag: tar.TypeDir},
		member{name: "d", flag: tar.TypeDir}, member{name: "d/h", flag: tar.TypeLink, link: "./a"},
		member{name: "d/up", flag: tar.TypeSymlink, link: "../a"}, member{name: "d/none", flag: tar.TypeSymlink, link: "later/../x"},
	)
	told, err := unpack(t, b, options())
	want := `[a "" 644  1 "1" d "dir" 644  0 "" d "dir" 644  0 "" d/h "" 644 a 1 "" d/up "link" 0 ../a 0 "" d/none "link" 0 later/../x 0 ""]`
	if err != nil || fmt.Sprint(told) != want {
		t.Errorf("%v %v\nwant %s", told, err, want)
	}
}

func TestAFailureOfTheSourceIsNotTheArchivesFault(t *testing.T) {
	read := func(ctx context.Context, r io.Reader) error {
		o := options()
		o.Spool = t.TempDir()
		return archive.Read(ctx, r, o, func(_ archive.Entry, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		})
	}
	plain := tarOf(t, member{name: "a", content: strings.Repeat("x", 9000)})
	for format, b := range map[archive.Format][]byte{archive.Tar: plain, archive.TarGzip: gz(t, plain), archive.Zip: zipOf(t, member{name: "a"})} {
		t.Run(string(format), func(t *testing.T) {
			away := errors.New("connection reset")
			err := read(t.Context(), io.MultiReader(bytes.NewReader(b[:len(b)-5]), iotest.ErrReader(away)))
			if !errs.Is(err, errs.Unavailable) || !errors.Is(err, away) {
				t.Errorf("%v", err)
			}
			refused := errs.New(errs.TooLarge, "the body is too large")
			if err := read(t.Context(), io.MultiReader(bytes.NewReader(b[:len(b)-5]), iotest.ErrReader(refused))); !errs.Is(err, errs.TooLarge) {
				t.Errorf("%v", err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := read(ended, bytes.NewReader(b)); !errs.Is(err, errs.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestTheCallersErrorEndsTheReading(t *testing.T) {
	own := errors.New("no room")
	for _, b := range [][]byte{tarOf(t, member{name: "a", content: "1"}, member{name: "b"}), zipOf(t, member{name: "a", content: "1"}, member{name: "b"})} {
		n := 0
		o := options()
		o.Spool = t.TempDir()
		err := archive.Read(t.Context(), bytes.NewReader(b), o, func(archive.Entry, io.Reader) error { n++; return own })
		if err != own || n != 1 {
			t.Errorf("%v after %d entries", err, n)
		}
	}
}

func TestAnArchiveBecomesAManifest(t *testing.T) {
	b := tarOf(
		t, member{name: "z", content: "1"}, member{name: "full/", flag: tar.TypeDir, mode: 0o755}, member{name: "full/a", content: "22"},
		member{name: "empty/", flag: tar.TypeDir, mode: 0o755}, member{name: "h", flag: tar.TypeLink, link: "full/a", mode: 0o600},
	)
	m, err := archive.Collect(t.Context(), bytes.NewReader(b), options(), func(r io.Reader, _ int64) (string, int64, error) {
		content, err := io.ReadAll(r)
		return "sum of " + string(content), int64(len(content)), err
	})
	want := []fleet.ManifestEntry{
		{Path: "empty", Kind: fleet.FileDir, Mode: 0o755},
		{Path: "full/a", Mode: 0o644, Size: 2, SHA256: "sum of 22"},
		{Path: "h", Mode: 0o600, Size: 2, SHA256: "sum of 22"},
		{Path: "z", Mode: 0o644, Size: 1, SHA256: "sum of 1"},
	}
	if err != nil || fmt.Sprintf("%+v", m.Entries) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v %v", m.Entries, err)
	}
}

func TestFormatsAreToldByName(t *testing.T) {
	for name, want := range map[string]archive.Format{
		"a.zip": archive.Zip, "A.ZIP": archive.Zip, "a.tar.gz": archive.TarGzip, "a.tgz": archive.TarGzip, "a.tar.zst": archive.TarZstd,
		"a.tzst": archive.TarZstd, "a.tar": archive.Tar, "a.jar": "", "zip": "",
	} {
		if got := archive.FormatOf(name); got != want {
			t.Errorf("FormatOf(%q) = %q", name, got)
		}
	}
}

func refused(t *testing.T, b []byte, o archive.Options, kind errs.Kind, want string) {
	t.Helper()
	_, err := unpack(t, b, o)
	told(t, err, kind, want)
}

func told(t *testing.T, err error, kind errs.Kind, want string) {
	t.Helper()
	if !errs.Is(err, kind) || !strings.Contains(errs.MessageOf(err), want) {
		t.Errorf("%v (%s), want %s: …%s…", err, errs.KindOf(err), kind, want)
	}
}
