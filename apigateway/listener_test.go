package apigateway

import (
	"errors"
	"net"
	"testing"
)

func TestShutListenerServesAcceptQueue(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &drainListener{Listener: l}
	const clients = 20
	for range clients { // connected by the kernel, but not accepted
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{7}); err != nil {
			t.Fatal(err)
		}
	}
	d.shut()
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("somebody comes in after it was shut")
	}
	for n := range clients {
		c, err := d.Accept()
		if err != nil {
			t.Fatalf("after %d of %d: %v", n, clients, err)
		}
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil || b[0] != 7 {
			t.Errorf("client %d: %v, %v", n, b, err)
		}
		c.Close()
	}
	if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("when all are in: %v", err)
	}
	d.shut() // a second call has no effect
}
