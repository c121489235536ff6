package ping

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

func TestVarInt(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value int32
		bytes []byte
	}{
		{"zero is one byte", 0, []byte{0}},
		{"seven bits fit a byte", 127, []byte{0x7f}},
		{"the lowest bits come first", 300, []byte{0xac, 0x02}},
		{"the largest takes five", math.MaxInt32, []byte{0xff, 0xff, 0xff, 0xff, 0x07}},
		{"minus one takes five", -1, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := appendVarInt(nil, tc.value); !bytes.Equal(got, tc.bytes) {
				t.Errorf("written as %x, want %x", got, tc.bytes)
			}
			if got, err := readVarInt(bytes.NewReader(tc.bytes)); got != tc.value || err != nil {
				t.Errorf("read as %d, %v; want %d", got, err, tc.value)
			}
		})
	}
}

func TestReadPacketRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		input []byte
		want  error
	}{
		{"nothing is the end of the stream", nil, io.EOF},
		{"a cut length", []byte{0x80}, io.ErrUnexpectedEOF},
		{"a cut body", []byte{3, 0}, io.ErrUnexpectedEOF},
		{"a body that never came", []byte{3}, io.ErrUnexpectedEOF},
		{"an empty packet", []byte{0}, ErrMalformed},
		{"a negative length", []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, ErrMalformed},
		{"a length beyond the limit", []byte{0xff, 0xff, 0x03}, ErrMalformed},
		{"a length of more than 32 bits", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, ErrMalformed},
		{"an id that ends after the packet", []byte{1, 0x80}, ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := ReadPacket(bufio.NewReader(bytes.NewReader(tc.input)), 64); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestParseHandshakeRefuses(t *testing.T) {
	good := Handshake{Protocol: 767, Host: "play.example", Port: 25565, Next: NextStatus}
	for _, tc := range []struct {
		name string
		body []byte
	}{
		{"an empty body", nil},
		{"a missing state", good.Append(nil)[:16]},
		{"bytes after the end", append(good.Append(nil), 0)},
		{"a state that does not exist", Handshake{Host: "h", Next: 4}.Append(nil)},
		{"a host that is too long", Handshake{Host: strings.Repeat("h", 256), Next: NextStatus}.Append(nil)},
		{"a host that is not UTF-8", Handshake{Host: "\xff", Next: NextStatus}.Append(nil)},
		{"a negative length of the host", append(appendVarInt(nil, 767), appendVarInt(nil, -1)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if h, err := ParseHandshake(tc.body); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %+v, %v; want ErrMalformed", h, err)
			}
		})
	}
}

func TestTextReadsBothForms(t *testing.T) {
	for input, want := range map[string]Text{
		`"plain"`:         "plain",
		`{"text":"an"}`:   "an",
		`{"extra":["a"]}`: "a",
		`{"text":"a","extra":[{"text":"b","bold":true},"c"]}`: "abc",
	} {
		var got Text
		if err := json.Unmarshal([]byte(input), &got); err != nil || got != want {
			t.Errorf("%s is read as %q, %v; want %q", input, got, err, want)
		}
	}
	if err := json.Unmarshal([]byte(`7`), new(Text)); err == nil {
		t.Error("a number is taken for a text")
	}
}

func TestLegacyFieldsCannotBreakTheFrame(t *testing.T) {
	s := Status{Description: Text("a§b\x00" + strings.Repeat("x", 500)), Players: Players{Max: 20, Online: 2}}
	answer := AppendLegacy(nil, s, false)
	if units := int(answer[1])<<8 | int(answer[2]); len(answer) != 3+2*units {
		t.Errorf("the frame says %d characters and holds %d bytes", units, len(answer)-3)
	}
	if got := bytes.Count(answer, []byte{0, 0xa7}); got != 2 {
		t.Errorf("%d separators, want 2", got)
	}
}

// TestPingEndsWithItsContext uses a server that accepts and never answers.
func TestPingEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if s, err := Ping(short, l.Addr().String()); err == nil {
		t.Errorf("a silent server has the status %+v", s)
	}
}

func FuzzReadPacket(f *testing.F) {
	f.Add(AppendPacket(nil, IDHandshake, Handshake{Protocol: 767, Host: "h", Port: 1, Next: NextLogin}.Append(nil)))
	f.Add(AppendPacket(nil, IDPing, make([]byte, 8)))
	f.Add([]byte{0xfe, 0x01, 0xfa})
	f.Fuzz(func(t *testing.T, data []byte) {
		id, body, err := ReadPacket(bufio.NewReader(bytes.NewReader(data)), MaxHandshakeLen)
		if err != nil {
			return
		}
		if len(body) > MaxHandshakeLen {
			t.Fatalf("a body of %d bytes", len(body))
		}
		again := AppendPacket(nil, id, body)
		id2, body2, err := ReadPacket(bufio.NewReader(bytes.NewReader(again)), MaxHandshakeLen+8)
		if err != nil || id2 != id || !bytes.Equal(body, body2) {
			t.Fatalf("%x is read back as %d %x, %v", again, id2, body2, err)
		}
	})
}

func FuzzParseHandshake(f *testing.F) {
	f.Add(Handshake{Protocol: 767, Host: "play.example", Port: 25565, Next: NextStatus}.Append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := ParseHandshake(body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
			return
		}
		if again, err := ParseHandshake(h.Append(nil)); err != nil || again != h {
			t.Fatalf("%+v is read back as %+v, %v", h, again, err)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add(AppendString(nil, `{"version":{"name":"v","protocol":1},"players":{"max":1,"online":0},"description":{"text":"d"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := ParseStatus(body); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("%v is not ErrMalformed", err)
		}
	})
}
