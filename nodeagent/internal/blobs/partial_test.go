package blobs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestWhoeverWritesWaitsForNoMoreThanAPartToBeHashed(t *testing.T) {
	c, err := Open(t.TempDir(), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	zeros := sha256.New()
	var e fleet.ManifestEntry
	for i := range 4 { // nothing but a hole, which is as good as any content
		e.Chunks = append(e.Chunks, fleet.Chunk{SHA256: fmt.Sprint(i), Size: maxChunk})
		e.Size += maxChunk
		zeros.Write(make([]byte, maxChunk))
	}
	e.SHA256 = hex.EncodeToString(zeros.Sum(nil))
	p, err := c.openPartial(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.leave()
	for i := range p.pieces {
		p.came(i)
	}
	if err := p.catchUp(false); err != nil || p.order.at != catchUpBytes {
		t.Errorf("%d bytes of %d were hashed at once, %v", p.order.at, e.Size, err)
	}
	if got, err := p.hash(); err != nil || got != e.SHA256 {
		t.Errorf("the whole has %s, %v", got, err)
	}
}
