package encoded

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
	packed := b.Packed()
	if again := b.Packed(); &again[0] != &packed[0] {
		t.Error("it is packed again")
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(r); err != nil || !bytes.Equal(back, plain) {
		t.Errorf("%d bytes come back, of %d: %v", len(back), len(plain), err)
	}
	if len(plain)+len(packed) > b.Size() {
		t.Errorf("%d and %d bytes are more than %d", len(plain), len(packed), b.Size())
	}
}
