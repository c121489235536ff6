package blobcache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestCatchUpHashesALimitedPart(t *testing.T) {
	c, err := Open(t.TempDir(), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	zeros := sha256.New()
	var e content.ManifestEntry
	for i := range 4 { // only a hole, read as zeros
		e.Chunks = append(e.Chunks, content.Chunk{SHA256: fmt.Sprint(i), Size: maxChunk})
		e.Size += maxChunk
		zeros.Write(make([]byte, maxChunk))
	}
	e.SHA256 = hex.EncodeToString(zeros.Sum(nil))
	p, err := c.openPartial(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for i := range p.chunks {
		p.markWritten(i)
	}
	if err := p.catchUp(false); err != nil || p.hasher.offset != maxCatchUpBytes {
		t.Errorf("%d bytes of %d were hashed at once, %v", p.hasher.offset, e.Size, err)
	}
	if got, err := p.sum(); err != nil || got != e.SHA256 {
		t.Errorf("the whole has %s, %v", got, err)
	}
}
