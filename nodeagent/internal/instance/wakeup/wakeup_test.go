package wakeup

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ports"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asleep is an instance that listens while it sleeps.
type asleep struct {
	t     *testing.T
	port  int
	stop  func()
	mu    sync.Mutex
	calls []sleep.Call
}

func listen(t *testing.T, rules sleep.Rules, slept time.Duration) *asleep {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &asleep{t: t, port: l.Addr().(*net.TCPAddr).Port}
	_ = l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Serve(ctx, Config{
			Port: a.port, Rules: rules, MaxPlayers: 20, Since: time.Now().Add(-slept), Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Call: func(c sleep.Call) { a.mu.Lock(); defer a.mu.Unlock(); a.calls = append(a.calls, c) },
		})
	}()
	a.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(a.stop)
	await.That(t, "it answers pings", func() string {
		_, java := a.ask(fleet.CheckMinecraft)
		_, bedrock := a.ask(fleet.CheckBedrock)
		return await.Unless(java == nil && bedrock == nil, "%v, %v", java, bedrock)
	})
	return a
}

func (a *asleep) ask(what fleet.CheckType) (probe.Answer, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*time.Second)
	defer cancel()
	return probe.Ask(ctx, fleet.Check{Type: what}, "127.0.0.1", a.port)
}

func (a *asleep) called() []sleep.Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

// join joins as a player of the Java edition and returns the text that disconnects the player.
func (a *asleep) join(state byte, player string) string {
	a.t.Helper()
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(a.port))
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	hello := probe.AppendString(probe.AppendVarInt([]byte{0}, 767), "localhost")
	hello = append(hello, 0x63, 0xdd, state)
	login := append(probe.AppendString([]byte{0}, player), make([]byte, 16)...)
	if _, err := c.Write(append(packet(hello), packet(login)...)); err != nil {
		a.t.Fatal(err)
	}
	p, err := readPacket(bufio.NewReader(c))
	if err != nil {
		a.t.Fatal(err)
	}
	r := strings.NewReader(string(p))
	if id, _ := probe.ReadVarInt(r); id != 0 {
		a.t.Fatalf("packet %d", id)
	}
	body, err := readText(r, maxPacket)
	if err != nil {
		a.t.Fatal(err)
	}
	var text struct{ Text string }
	if err := json.Unmarshal([]byte(body), &text); err != nil {
		a.t.Fatal(err)
	}
	return text.Text
}

func TestStatusPingsAreAnsweredAndWakeNothing(t *testing.T) {
	a := listen(t, sleep.Rules{}, time.Hour)
	for _, what := range []fleet.CheckType{fleet.CheckMinecraft, fleet.CheckBedrock} {
		if got, err := a.ask(what); err != nil || got != (probe.Answer{MaxPlayers: 20, PlayersKnown: true}) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if calls := a.called(); len(calls) > 0 {
		t.Errorf("called by %+v", calls)
	}
}

func TestAJoinWakesAndIsToldToComeAgain(t *testing.T) {
	for _, state := range []byte{stateLogin, stateTransfer} {
		a := listen(t, sleep.Rules{}, 0)
		if got := a.join(state, "ann"); got != starting {
			t.Errorf("told %q", got)
		}
		if calls := a.called(); len(calls) != 1 || !calls[0].Join || calls[0].Player != "ann" {
			t.Errorf("called by %+v", calls)
		}
	}
}

func TestAHostileNameIsLeftOut(t *testing.T) {
	a := listen(t, sleep.Rules{}, 0)
	a.join(stateLogin, "a\nb\xff")
	if calls := a.called(); len(calls) != 1 || calls[0].Player != "" {
		t.Errorf("called by %+v", calls)
	}
}

func TestABedrockJoinWakes(t *testing.T) {
	a := listen(t, sleep.Rules{}, 0)
	c, err := net.Dial("udp", "127.0.0.1:"+strconv.Itoa(a.port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(append([]byte{openRequest}, probe.RakNetMagic...)); err != nil {
		t.Fatal(err)
	}
	await.That(t, "it is called", func() string { return await.Unless(len(a.called()) == 1, "%v", a.called()) })
}

func TestConnectionsWakeOnlyIfTheGroupSaysSoAndNotAtOnce(t *testing.T) {
	send := func(a *asleep, what string) {
		t.Helper()
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(a.port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte(what))
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = c.Read(make([]byte, 1)) // until it is served
	}
	for _, what := range []string{"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\xff", "\x01", "\x00"} {
		scanned := listen(t, sleep.Rules{WakeOn: sleep.WakeOnJoin}, time.Hour)
		send(scanned, what)
		early := listen(t, sleep.Rules{WakeOn: sleep.WakeOnConnect}, 0)
		send(early, what)
		if a, b := scanned.called(), early.called(); len(a)+len(b) > 0 {
			t.Errorf("%q woke: %+v, %+v", what, a, b)
		}
	}
	a := listen(t, sleep.Rules{WakeOn: sleep.WakeOnConnect}, 2*quietTime)
	if calls := a.called(); len(calls) == 0 || calls[0].Join {
		t.Errorf("a ping did not wake it: %+v", calls)
	}
}

func TestThePortIsFreeAfterwards(t *testing.T) {
	a := listen(t, sleep.Rules{}, 0)
	c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(a.port)) // an open connection does not matter
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a.join(stateLogin, "ann")
	a.stop()
	if busy, err := ports.Probe(a.port); err != nil || busy != nil && !busy.Leftover() {
		t.Errorf("the port is held by %v, %v", busy, err)
	}
}

func FuzzJava(f *testing.F) {
	f.Add([]byte("\x10\x00\xff\x05\x09localhost\x63\xdd\x01\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, own := net.Pipe()
		_ = own.SetDeadline(time.Now().Add(time.Second)) // a client that does not read
		s := &server{Config: Config{Now: time.Now, Call: func(sleep.Call) {}}}
		go func() {
			_, _ = client.Write(b)
			_ = client.Close()
		}()
		s.serveJava(own)
		_ = own.Close()
		s.answerBedrock(b)
	})
}
