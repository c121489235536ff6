package blob

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	packFrom   = 1 << 10  // bytes from which compression is worth a try
	probe      = 64 << 10 // is looked at first
	worthwhile = 85       // percent that may be left
)

// pack compresses a blob; nil when that saves too little.
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

// unpackedSize reads from a compressed blob's head what it unpacks to.
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

// unpacked reads a compressed blob; closing it closes what it is read from.
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

// Close ends the reading.
func (u unpacked) Close() error {
	u.Decoder.Close()
	return u.from.Close()
}
