package bodycache

import (
	"bytes"
	"compress/gzip"
	"sync"
)

// Body is a response body that is sent many times.
type Body struct {
	// Plain is the uncompressed body.
	Plain []byte
	// gzipped compresses the body on the first call.
	gzipped func() []byte
}

// NewBody returns a Body. The caller must not change plain afterwards.
func NewBody(plain []byte) *Body {
	return &Body{Plain: plain, gzipped: sync.OnceValue(func() []byte { return compress(plain) })}
}

// Gzipped returns the body compressed with gzip. It is compressed once.
func (b *Body) Gzipped() []byte { return b.gzipped() }

// Size is an upper estimate, in bytes, of a text body together with its compressed form.
func (b *Body) Size() int { return len(b.Plain) + len(b.Plain)/2 }

// compress favors speed over size: many bodies are used for a second only.
func compress(plain []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // fails only for invalid levels
	_, _ = w.Write(plain)                             // a buffer never fails
	_ = w.Close()
	return bytes.Clone(out.Bytes()) // drops the buffer's spare capacity
}
