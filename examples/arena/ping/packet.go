package ping

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrMalformed is returned for bytes that are not a packet of this protocol.
var ErrMalformed = errors.New("malformed packet")

// The packet IDs, by state.
const (
	IDHandshake       = 0x00 // client, first packet
	IDStatus          = 0x00 // status state: the request and its response
	IDPing            = 0x01 // status state: the ping and its pong
	IDLoginDisconnect = 0x00 // server, login state: a JSON text with the reason
)

// Limits of a packet's length in bytes, for ReadPacket.
const (
	MaxHandshakeLen = 1024 // a host of 255 characters of 3 bytes, and the numbers around it
	MaxRequestLen   = 16   // a status request or a ping
	MaxLoginLen     = 4096 // a name, with the key and signature some versions add
	MaxStatusLen    = 3*maxStringLen + 8
)

// maxStringLen is the protocol's limit for any string, in UTF-16 code units.
const maxStringLen = 32767

// ReadPacket reads one packet of at most limit bytes, including its ID. It returns io.EOF
// at the end of the stream and io.ErrUnexpectedEOF within a packet. It returns
// ErrMalformed, without allocating, for a length that is not positive or exceeds the limit.
func ReadPacket(r *bufio.Reader, limit int) (id int32, body []byte, err error) {
	length, err := readVarInt(r)
	if err != nil {
		return 0, nil, err
	}
	if length <= 0 || int64(length) > int64(limit) {
		return 0, nil, fmt.Errorf("%w: length %d, at most %d here", ErrMalformed, length, limit)
	}
	buf := make([]byte, length)
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	f := fields{rest: buf}
	id = f.varInt()
	return id, f.rest, f.err
}

// AppendPacket appends a whole packet to dst.
func AppendPacket(dst []byte, id int32, body []byte) []byte {
	idBytes := appendVarInt(nil, id)
	dst = appendVarInt(dst, int32(len(idBytes)+len(body)))
	dst = append(dst, idBytes...)
	return append(dst, body...)
}

// AppendString appends a string field: its length in bytes, then its UTF-8 bytes.
func AppendString(dst []byte, s string) []byte {
	dst = appendVarInt(dst, int32(len(s)))
	return append(dst, s...)
}

func readVarInt(r io.ByteReader) (int32, error) {
	var v uint32
	for shift := 0; ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			if shift > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		if shift == 28 && b > 0x0f {
			return 0, fmt.Errorf("%w: a VarInt has at most 32 bits", ErrMalformed)
		}
		v |= uint32(b&0x7f) << shift
		if b&0x80 == 0 {
			return int32(v), nil
		}
	}
}

func appendVarInt(dst []byte, v int32) []byte {
	return binary.AppendUvarint(dst, uint64(uint32(v)))
}

// fields reads the fields of a packet's body. The first error sticks; after it every field
// is zero.
type fields struct {
	rest []byte
	err  error
}

// ReadByte reads one byte, for readVarInt.
func (f *fields) ReadByte() (byte, error) {
	b := f.take(1)
	if f.err != nil {
		return 0, f.err
	}
	return b[0], nil
}

func (f *fields) take(n int) []byte {
	if f.err != nil {
		return nil
	}
	if n < 0 || n > len(f.rest) {
		f.err = fmt.Errorf("%w: a field ends after the packet", ErrMalformed)
		return nil
	}
	taken := f.rest[:n]
	f.rest = f.rest[n:]
	return taken
}

func (f *fields) varInt() int32 {
	v, err := readVarInt(f)
	if err != nil {
		f.err = err
		return 0
	}
	return v
}

func (f *fields) uint16() uint16 {
	b := f.take(2)
	if f.err != nil {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// string reads a string of at most limit UTF-16 code units.
func (f *fields) string(limit int) string {
	s := string(f.take(int(f.varInt())))
	if f.err != nil {
		return ""
	}
	if !utf8.ValidString(s) || utf16Len(s) > limit {
		f.err = fmt.Errorf("%w: a string is not UTF-8 or longer than %d", ErrMalformed, limit)
		return ""
	}
	return s
}

// end returns the sticky error, or ErrMalformed when bytes are left.
func (f *fields) end() error {
	if f.err == nil && len(f.rest) > 0 {
		f.err = fmt.Errorf("%w: %d bytes after the last field", ErrMalformed, len(f.rest))
	}
	return f.err
}

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
