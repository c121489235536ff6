package bodycache

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

func TestABodyIsPackedOnceForAll(t *testing.T) {
	plain := []byte(strings.Repeat(`{"name":"lobby"},`, 1000))
	b := NewBody(plain)
	gzipped := b.Gzipped()
	if again := b.Gzipped(); &again[0] != &gzipped[0] {
		t.Error("it is gzipped again")
	}
	r, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(r); err != nil || !bytes.Equal(back, plain) {
		t.Errorf("%d bytes come back, of %d: %v", len(back), len(plain), err)
	}
	if len(plain)+len(gzipped) > b.Size() {
		t.Errorf("%d and %d bytes are more than %d", len(plain), len(gzipped), b.Size())
	}
}
