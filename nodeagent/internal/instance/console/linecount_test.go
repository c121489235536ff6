package console

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// metered is a log that counts the bytes read from it.
type metered struct {
	source
	read int
}

func (m *metered) ReadAt(b []byte, at int64) (int, error) {
	m.read += len(b)
	return m.source.ReadAt(b, at)
}

func TestLineCountsAreCached(t *testing.T) {
	path, c, text := filepath.Join(t.TempDir(), "log"), newLineCounter(), []byte(nil)
	for n, more := range []string{"", "a", "\n", "line\n", "unfinished"} {
		for _, add := range [][]byte{bytes.Repeat([]byte("0123456789\n"), 100_000), []byte(more)} {
			text = append(text, add...)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		p := &Page{log: &metered{source: log}, size: int64(len(text))}
		want := int64(bytes.Count(text, []byte{'\n'}))
		if text[len(text)-1] != '\n' {
			want++
		}
		for range 2 {
			p.log.(*metered).read = 0
			if got, err := c.count(t.Context(), p); got != want || err != nil {
				t.Errorf("%d: %d lines, %v, want %d", n, got, err, want)
			}
		}
		if read := p.log.(*metered).read; read > searchBlock {
			t.Errorf("%d: %d bytes were read to count again", n, read)
		}
		if err := p.log.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	}
}
