package archive_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

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
		"something before it":        {append([]byte("PK\x03\x04 hello"), good...), "other bytes before"},
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
