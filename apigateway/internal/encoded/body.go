package encoded

import (
	"bytes"
	"compress/gzip"
	"sync"
)

// Body is an answer that is sent many times.
type Body struct {
	// Plain is the body as it was encoded.
	Plain []byte
	// packed packs it with gzip, the first time somebody takes that.
	packed func() []byte
}

// NewBody keeps a body, which is not changed from then on.
func NewBody(plain []byte) *Body {
	return &Body{Plain: plain, packed: sync.OnceValue(func() []byte { return pack(plain) })}
}

// Packed is the body packed with gzip, once for all who take it.
func (b *Body) Packed() []byte { return b.packed() }

// Size is at least what a body of text takes with what it is packed to, in bytes.
func (b *Body) Size() int { return len(b.Plain) + len(b.Plain)/2 }

// pack packs quickly: what is kept may be of one second only.
func pack(plain []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // fails for levels that there are not
	_, _ = w.Write(plain)                             // a buffer takes all
	_ = w.Close()
	return bytes.Clone(out.Bytes()) // without the room the buffer grew into
}
