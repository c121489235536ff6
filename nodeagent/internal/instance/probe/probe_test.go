package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const loopback = "127.0.0.1"

// tcp serves each connection on a port of its own.
func tcp(t *testing.T, serve func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// udp answers each datagram; nil is no answer.
func udp(t *testing.T, answer func([]byte) []byte) int {
	t.Helper()
	c, err := net.ListenPacket("udp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, maxDatagram)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := answer(buf[:n]); a != nil {
				_, _ = c.WriteTo(a, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return c.LocalAddr().(*net.UDPAddr).Port
}

// site is an HTTP server.
func site(t *testing.T, h http.HandlerFunc) int {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// status is a packet with a Minecraft server's status.
func status(json string) []byte {
	packet := AppendString([]byte{0}, json)
	return append(AppendVarInt(nil, int32(len(packet))), packet...)
}

// minecraft answers like a Minecraft server.
func minecraft(packet []byte) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		n, err := ReadVarInt(r)
		if err != nil {
			return
		}
		_, _ = r.Discard(int(n))
		if request, err := r.Peek(2); err != nil || !bytes.Equal(request, []byte{1, 0}) {
			return
		}
		_, _ = c.Write(packet)
	}
}

// pong is RakNet's answer to an unconnected ping.
func pong(line string) []byte {
	b := append(make([]byte, 17), RakNetMagic...)
	b[0] = UnconnectedPong
	b = binary.BigEndian.AppendUint16(b, uint16(len(line)))
	return append(b, line...)
}

func raknet(answer []byte) func([]byte) []byte {
	return func(q []byte) []byte {
		if len(q) != 33 || q[0] != UnconnectedPing || !bytes.Equal(q[9:25], RakNetMagic) {
			return nil
		}
		return answer
	}
}

const info = "\xff\xff\xff\xffI\x11name\x00map\x00folder\x00game\x00\x0a\x00\x07\x20\x01dl\x00\x00"

// challenged answers A2S_INFO only with the challenge it gave.
func challenged(q []byte) []byte {
	if bytes.HasSuffix(q, []byte("\x00abcd")) {
		return []byte(info)
	}
	return []byte("\xff\xff\xff\xffAabcd")
}

func TestAskPassesForWorkingServer(t *testing.T) {
	second := new(atomic.Bool)
	cases := []struct {
		rule  string
		check fleet.Check
		port  func(*testing.T) int
		want  Answer
	}{
		{"no check", fleet.Check{}, func(*testing.T) int { return 1 }, Answer{}},
		{"open port", fleet.Check{Type: fleet.CheckPort}, func(t *testing.T) int { return tcp(t, func(net.Conn) {}) }, Answer{}},
		{"answered datagram", fleet.Check{Type: fleet.CheckUDP, Send: `\x01?`, Pattern: "^pong"}, func(t *testing.T) int {
			return udp(t, func(q []byte) []byte {
				if string(q) != "\x01?" {
					return nil
				}
				return []byte("pong")
			})
		}, Answer{}},
		{"lost datagram is sent again", fleet.Check{Type: fleet.CheckUDP}, func(t *testing.T) int {
			return udp(t, func([]byte) []byte {
				if second.Swap(true) {
					return []byte{1}
				}
				return nil
			})
		}, Answer{}},
		{"any status below 400", fleet.Check{Type: fleet.CheckHTTP}, func(t *testing.T) int {
			return site(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
			})
		}, Answer{}},
		{"expected status, path and text", fleet.Check{Type: fleet.CheckHTTP, Path: "/health?x=1", Status: 503, Pattern: "warm"}, func(t *testing.T) int {
			return site(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = fmt.Fprint(w, "warming ", r.URL)
			})
		}, Answer{}},
		{"Minecraft with its players", fleet.Check{Type: fleet.CheckMinecraft}, func(t *testing.T) int {
			return tcp(t, minecraft(status(`{"version":{"name":"1.21"},"players":{"max":20,"online":3,"sample":[]},"description":"x"}`)))
		}, Answer{3, 20, true}},
		{"Minecraft with hidden players", fleet.Check{Type: fleet.CheckMinecraft}, func(t *testing.T) int { return tcp(t, minecraft(status(`{"description":"x"}`))) }, Answer{}},
		{"another game on RakNet", fleet.Check{Type: fleet.CheckBedrock}, func(t *testing.T) int {
			return udp(t, raknet(pong("hello")))
		}, Answer{}},
		{"Bedrock", fleet.Check{Type: fleet.CheckBedrock}, func(t *testing.T) int { return udp(t, raknet(pong("MCPE;Name;800;1.21;2;10;9;level;Survival;1;"))) }, Answer{2, 10, true}},
		{"Source with a challenge", fleet.Check{Type: fleet.CheckA2S}, func(t *testing.T) int { return udp(t, challenged) }, Answer{7, 32, true}},
		{"servers older than Source", fleet.Check{Type: fleet.CheckA2S}, func(t *testing.T) int {
			return udp(t, func([]byte) []byte { return []byte("\xff\xff\xff\xffmaddr\x00n\x00m\x00f\x00g\x00\x05\x10") })
		}, Answer{5, 16, true}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			if got, err := Ask(within(t, 10*time.Second), c.check, loopback, c.port(t)); err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAskExplainsFailure(t *testing.T) {
	mute := func(t *testing.T) int { return udp(t, func([]byte) []byte { return nil }) }
	closed := func(t *testing.T) int {
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	// hold accepts a connection and sends nothing until the client has left.
	hold := func(t *testing.T) int {
		return tcp(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	}
	says := func(text string) func(*testing.T) int {
		return func(t *testing.T) int {
			return tcp(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				_, _ = r.ReadByte() // no response before the request
				_, _ = c.Write([]byte(text))
				_, _ = io.Copy(io.Discard, r)
			})
		}
	}
	replies := func(text string) func(*testing.T) int {
		return func(t *testing.T) int { return udp(t, func([]byte) []byte { return []byte(text) }) }
	}
	code := func(n int) func(*testing.T) int {
		return func(t *testing.T) int {
			return site(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) })
		}
	}
	cases := []struct {
		rule  string
		check fleet.Check
		port  func(*testing.T) int
		kind  errs.Kind
		says  string
	}{
		{"a closed port", fleet.Check{Type: fleet.CheckPort}, closed, errs.Unavailable, "connection refused"},
		{"no answer to a datagram", fleet.Check{Type: fleet.CheckUDP}, mute, errs.Unavailable, "in time"},
		{"another answer", fleet.Check{Type: fleet.CheckUDP, Pattern: "^pong$"}, replies("ping"), errs.Invalid, "does not match"},
		{"an error over HTTP", fleet.Check{Type: fleet.CheckHTTP}, code(404), errs.Invalid, "with 404"},
		{"another status", fleet.Check{Type: fleet.CheckHTTP, Status: 204}, code(200), errs.Invalid, "instead of 204"},
		{"not HTTP", fleet.Check{Type: fleet.CheckHTTP}, says("SSH-2.0\r\n"), errs.Unavailable, "malformed"},
		{"silent Minecraft", fleet.Check{Type: fleet.CheckMinecraft}, hold, errs.Unavailable, "in time"},
		{"not Minecraft", fleet.Check{Type: fleet.CheckMinecraft}, says("HTTP/1.1 400 Bad Request\r\n\r\n"), errs.Invalid, "Minecraft"},
		{"endless number", fleet.Check{Type: fleet.CheckMinecraft}, says("\xff\xff\xff\xff\xff\xff"), errs.Invalid, "32 bits"},
		{"huge packet", fleet.Check{Type: fleet.CheckMinecraft}, says("\xff\xff\xff\xff\x07"), errs.Invalid, "length"},
		{"not RakNet", fleet.Check{Type: fleet.CheckBedrock}, replies("hello"), errs.Invalid, "RakNet"},
		{"not Source", fleet.Check{Type: fleet.CheckA2S}, replies("hello"), errs.Invalid, "Valve"},
		{"endless challenges", fleet.Check{Type: fleet.CheckA2S}, replies("\xff\xff\xff\xffAabcd"), errs.Invalid, "challenge"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			patience := 10 * time.Second
			if c.says == "in time" {
				patience = 50 * time.Millisecond
			}
			_, err := Ask(within(t, patience), c.check, loopback, c.port(t))
			if !errs.Is(err, c.kind) || !strings.Contains(errs.MessageOf(err), c.says) {
				t.Errorf("%v (%v)", err, errs.KindOf(err))
			}
		})
	}
}

func FuzzServerAnswers(f *testing.F) {
	for _, seed := range [][]byte{status(`{"players":{"max":1,"online":2}}`), pong("a;b;c;d;1;2"), []byte(info)[4:], nil, {0xff}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fromStatus, _ := readStatus(bufio.NewReader(bytes.NewReader(b)))
		fromPong, _ := readPong(b)
		fromInfo, _ := readInfo(b)
		for _, a := range []Answer{fromStatus, fromPong, fromInfo} {
			if a.Players < 0 || a.MaxPlayers < 0 || !a.PlayersKnown && a != (Answer{}) {
				t.Errorf("%+v", a)
			}
		}
	})
}
