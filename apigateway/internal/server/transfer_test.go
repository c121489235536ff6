package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/await"
)

// bare returns a server on which every request runs only part.
func bare(part func(*Server, *gin.Context)) *Server {
	s := &Server{engine: newEngine(), routes: map[string]map[string]*Route{}}
	s.engine.Use(func(c *gin.Context) { part(s, c) })
	return s
}

func TestALargeBodyMayTakeLongerThanAServersTimeLimit(t *testing.T) {
	const limit = 100 * time.Millisecond
	frame := bare((*Server).limitBody)
	got := make(chan string, 1)
	handler := func(c *gin.Context) {
		b, err := io.ReadAll(c.Request.Body)
		if err != nil {
			b = []byte("cut")
		}
		got <- string(b)
	}
	frame.Add(Post("/large", Public, handler).Reads(Upload), Post("/small", Public, handler))
	s := httptest.NewUnstartedServer(frame)
	s.Config.ReadTimeout = limit
	s.Start()
	defer s.Close()
	for path, want := range map[string]string{"/large": "ab", "/small": "cut"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
		select {
		case b := <-got:
			if b != want {
				t.Errorf("%s: %q", path, b)
			}
			continue
		case <-time.After(3 * limit):
		}
		_, _ = io.WriteString(conn, "b")
		if b := <-got; b != want {
			t.Errorf("%s: %q", path, b)
		}
	}
}

func TestAnAttachmentsNameStandsInItsHeader(t *testing.T) {
	for name, want := range map[string]string{"a.zip": "a.zip", "a\"b\r\nX: y": "a_b__X: y", "ü/..": "__.."} {
		if got := attachment(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestABodyThatIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	frame := bare((*Server).limitBody)
	frame.Add(Post("/small", Public, func(*gin.Context) { t.Error("it was served") }))
	s := httptest.NewServer(frame)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000000\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(await.Patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Fatalf("%+v, %v", resp, err)
	}
	_ = resp.Body.Close()
}
