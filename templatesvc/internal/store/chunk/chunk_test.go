package chunk_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/orreryhq/orrery/templatesvc/internal/store/chunk"
)

// noise returns n pseudo-random bytes, which do not compress and are always the same.
func noise(n int64) io.Reader {
	var seed [32]byte
	return io.LimitReader(rand.NewChaCha8(seed), n)
}

// cuts returns the hashes and the sizes of a stream's chunks.
func cuts(t *testing.T, r io.Reader) (sums []string, sizes []int) {
	t.Helper()
	c := chunk.New(r)
	for {
		b, err := c.Next()
		if errors.Is(err, io.EOF) {
			return sums, sizes
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		sums, sizes = append(sums, hex.EncodeToString(sum[:8])), append(sizes, len(b))
	}
}

func TestTheCutsStayWhereTheyAre(t *testing.T) {
	sums, sizes := cuts(t, noise(8<<20))
	all := sha256.Sum256(fmt.Append(nil, sums, sizes))
	const golden = "1dcd23a123d82fd6bab5ee24d86044cbb02f8f74d8972dc190e1eb0b085dd689"
	if got := hex.EncodeToString(all[:]); got != golden {
		t.Errorf("the cuts moved to %v (%s): every large file would be stored anew", sizes, got)
	}
}

func TestSizesAreWithinTheirBoundsAndNearTheAverage(t *testing.T) {
	const total = 64 << 20
	_, sizes := cuts(t, noise(total))
	for _, n := range sizes[:len(sizes)-1] {
		if n < chunk.Min || n > chunk.Max {
			t.Errorf("a chunk has %d bytes", n)
		}
	}
	if average := total / len(sizes); average < chunk.Average/2 || average > 2*chunk.Average {
		t.Errorf("the average is %d", average)
	}
}

func TestTheSizeOfReadsMovesNoCut(t *testing.T) {
	want, _ := cuts(t, noise(6<<20))
	for name, r := range map[string]io.Reader{
		"halves":                  iotest.HalfReader(noise(6 << 20)),
		"end with the last bytes": iotest.DataErrReader(noise(6 << 20)),
	} {
		if got, _ := cuts(t, r); !slices.Equal(got, want) {
			t.Errorf("%s: other cuts", name)
		}
	}
}

func TestAnInsertionMovesOnlyTheCutsNearIt(t *testing.T) {
	whole, err := io.ReadAll(noise(32 << 20))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := cuts(t, bytes.NewReader(whole))
	for _, at := range []int{0, 5 << 20, 17<<20 + 3, len(whole)} {
		after, _ := cuts(t, bytes.NewReader(slices.Insert(slices.Clone(whole), at, []byte("something new")...)))
		fresh := slices.DeleteFunc(after, func(s string) bool { return slices.Contains(before, s) })
		if len(fresh) > 3 {
			t.Errorf("at %d: %d chunks are new", at, len(fresh))
		}
	}
}

// TestAChangedMiBMovesFewBytes applies to files of any size, because boundaries depend only
// on nearby bytes. Of a file of 2 GiB, less than 0.4 % changes.
func TestAChangedMiBMovesFewBytes(t *testing.T) {
	const total, at, changed = 128 << 20, 70<<20 + 12345, 1 << 20
	before, _ := cuts(t, noise(total))
	original := noise(total)
	after, sizes := cuts(t, io.MultiReader(io.LimitReader(original, at), changedBytes(original, changed), original))
	moved := 0
	for i, s := range after {
		if !slices.Contains(before, s) {
			moved += sizes[i]
		}
	}
	if moved < changed || moved > changed+3*chunk.Max {
		t.Errorf("%d bytes moved", moved)
	}
}

// changedBytes inverts the next n bytes of r.
func changedBytes(r io.Reader, n int64) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if n == 0 {
			return 0, io.EOF
		}
		got, err := r.Read(p[:min(int64(len(p)), n)])
		for i := range p[:got] {
			p[i] ^= 0xff
		}
		n -= int64(got)
		return got, err
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestAFailedReadIsNoEnd(t *testing.T) {
	broken := errors.New("cut")
	c := chunk.New(io.MultiReader(noise(5<<20), iotest.ErrReader(broken)))
	for {
		_, err := c.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("a broken stream ended as if it were whole")
		}
		if errors.Is(err, broken) {
			return
		}
	}
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte(nil), uint32(0))
	f.Add([]byte("abc"), uint32(3<<20))
	f.Fuzz(func(t *testing.T, salt []byte, size uint32) {
		if len(salt) == 0 {
			salt = []byte{0}
		}
		whole := bytes.Repeat(salt, 1+int(size%(5<<20))/len(salt))
		var joined []byte
		c := chunk.New(bytes.NewReader(whole))
		for {
			b, err := c.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(b) == 0 || len(b) > chunk.Max {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			joined = append(joined, b...)
		}
		if !bytes.Equal(joined, whole) {
			t.Error("the chunks joined are not the input")
		}
	})
}
