package wire

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// serving runs a server with one call that lasts until release is closed.
func serving(t *testing.T, drain time.Duration) (url string, begun, release chan struct{}, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, release = make(chan struct{}), make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-release
		_, _ = io.WriteString(w, "done")
	})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, s, l, drain) }()
	return "http://" + l.Addr().String(), begun, release, func() error {
		cancel()
		return <-ended
	}
}

func TestServeFinishesCurrentCalls(t *testing.T) {
	url, begun, release, stop := serving(t, time.Minute)
	answer := make(chan string, 1)
	go func() {
		r, err := http.Get(url)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		answer <- string(b)
	}()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(release)
	if got := <-answer; got != "done" {
		t.Error(got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServeClosesSlowCalls(t *testing.T) {
	url, begun, release, stop := serving(t, time.Millisecond)
	cut := make(chan error, 1)
	go func() {
		r, err := http.Get(url)
		if err == nil {
			_ = r.Body.Close()
		}
		cut <- err
	}()
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if <-cut == nil {
		t.Error("the call was answered")
	}
	close(release)
}

func TestServeFailsWithItsListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := Serve(t.Context(), &http.Server{}, l, time.Second); !errs.Is(err, errs.Unavailable) {
		t.Error(err)
	}
}
