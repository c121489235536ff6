package mail

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
)

// server accepts one mail. It rejects the command that starts with refused.
func server(t *testing.T, refused string) (address string, said <-chan []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	out := make(chan []string, 1)
	go func() {
		var lines []string
		defer func() { out <- lines }()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(await.Patience))
		answer := func(text string) { fmt.Fprint(conn, text+"\r\n") }
		answer("220 here")
		data := false
		for in := bufio.NewScanner(conn); in.Scan(); {
			line := in.Text()
			lines = append(lines, line)
			switch {
			case data && line != ".":
			case refused != "" && strings.HasPrefix(line, refused):
				answer("550 no")
			case line == "DATA":
				data = true
				answer("354 go on")
			case line == "QUIT":
				answer("221 bye")
				return
			default:
				data = false
				answer("250 ok")
			}
		}
	}()
	return l.Addr().String(), out
}

func TestAMailHasItsAddressesAndItsText(t *testing.T) {
	address, said := server(t, "")
	err := Server{Address: address, From: "Orrery <orrery@example.org>"}.Send(t.Context(), "bob@example.org", "Another password", "One\n.\nTwo\n")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(<-said, "\n")
	for _, want := range []string{
		"MAIL FROM:<orrery@example.org>", "RCPT TO:<bob@example.org>", "To: <bob@example.org>", "Subject: Another password", "\n\nOne\n..\nTwo\n.\nQUIT",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestAMailThatIsNotTakenIsAnError(t *testing.T) {
	for _, command := range []string{"MAIL", "RCPT", "DATA", "."} {
		address, said := server(t, command)
		err := Server{Address: address, From: "orrery@example.org"}.Send(t.Context(), "bob@example.org", "x", "x")
		if !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s refused: %v", command, err)
		}
		<-said
	}
	for from, to := range map[string]string{"nobody": "bob@example.org", "orrery@example.org": "bob@example.org\r\nBcc: eve@example.org"} {
		if err := (Server{Address: "127.0.0.1:1", From: from}).Send(t.Context(), to, "x", "x"); !errs.Is(err, errs.Invalid) {
			t.Errorf("from %q to %q: %v", from, to, err)
		}
	}
}
