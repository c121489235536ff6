package blob

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	packFrom   = 1 << 10  // bytes; smaller blobs are not compressed
	probe      = 64 << 10 // bytes that are compressed first, as a sample
	worthwhile = 85       // percent of the size that may remain after compression
)

// pack compresses a blob. It returns nil when that saves too little.
func (s *Store) pack(b []byte) []byte {
	if len(b) < packFrom {
		return nil
	}
	if len(b) > probe && !saves(len(s.enc.EncodeAll(b[:probe], nil)), probe) {
		return nil
	}
	if packed := s.enc.EncodeAll(b, nil); saves(len(packed), len(b)) {
		return packed
	}
	return nil
}

func saves(packed, raw int) bool { return packed*100 <= raw*worthwhile }

// unpackedSize reads the uncompressed size from the header of a compressed blob.
func unpackedSize(r io.Reader) (int64, error) {
	head := make([]byte, zstd.HeaderMaxSize)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	var h zstd.Header
	if err := h.Decode(head[:n]); err != nil {
		return 0, err
	}
	if !h.HasFCS {
		return 0, errors.New("a compressed blob does not say its size")
	}
	return int64(h.FrameContentSize), nil
}

// unpacked decompresses a blob. Close also closes the underlying reader.
type unpacked struct {
	*zstd.Decoder
	from io.Closer
}

func unpack(r io.ReadCloser) (io.ReadCloser, error) {
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBytes+1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return unpacked{dec, r}, nil
}

// Close implements io.Closer.
func (u unpacked) Close() error {
	u.Decoder.Close()
	return u.from.Close()
}
