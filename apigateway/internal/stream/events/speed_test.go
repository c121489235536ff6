package events_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/view"
)

// audienceOf is set in the client process of BenchmarkAudience. It has the address to connect to and
// the number of events for each client.
const audienceOf = "ORRERY_TEST_AUDIENCE"

// BenchmarkAudience sends 100 events a second to 1,000 clients in another process. It reports the CPU time of
// the gateway per event and client, including the kernel's, the writes per event and client, and the latency.
//
//	go test -run '^$' -bench Audience -benchtime 1000x ./internal/stream/events
func BenchmarkAudience(b *testing.B) {
	const clients, rate = 1000, 100
	log := events.NewLog(0)
	s := events.New(events.Config{Log: log, Caller: bearer})
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.GET("/stream", s.Stream)
	srv := httptest.NewServer(e)
	defer srv.Close()
	defer s.Close()
	snap := *view.New(nil, nil).Snapshot()
	snap.Rev = 1
	log.OnBatch(view.Batch{Before: &snap, After: &snap, Relisted: true})

	them := exec.Command(os.Args[0])
	them.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", audienceOf, srv.Listener.Addr(), clients, b.N))
	them.Stderr = os.Stderr
	out, err := them.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := them.Start(); err != nil {
		b.Fatal(err)
	}
	said := bufio.NewScanner(out)
	if !said.Scan() {
		b.Fatal("no client came: ", them.Wait())
	}
	b.ResetTimer()
	spent := processorTime()
	for start, n := time.Now(), 0; n < b.N; n++ {
		pause.For(b.Context(), time.Until(start.Add(time.Duration(n)*time.Second/rate)))
		after := snap
		after.Rev++
		log.OnBatch(view.Batch{Before: &snap, After: &after, Changes: []view.Change{{
			Kind: view.KindGroup, Rev: after.Rev, Key: []string{fmt.Sprintf("at-%d-number-%d", time.Now().UnixNano(), n)}, After: &fleet.Group{},
		}}})
		snap = after
	}
	if !said.Scan() {
		b.Fatal("the clients did not hear everything: ", them.Wait())
	}
	spent = processorTime() - spent
	b.StopTimer()
	b.ReportMetric(float64(spent.Microseconds())/float64(clients*b.N), "cpu-µs/told")
	for _, figure := range strings.Fields(said.Text()) {
		name, value, _ := strings.Cut(figure, "=")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(number, name)
	}
	if err := them.Wait(); err != nil {
		b.Fatal(err)
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// beAudience runs the clients. It reports when all are connected and, at the end, what they measured.
func beAudience(of string) error {
	var (
		addr           string
		clients, count int
	)
	if _, err := fmt.Sscan(of, &addr, &clients, &count); err != nil {
		return err
	}
	all := make([]*listener, clients)
	for n := range all {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		all[n] = &listener{conn: conn}
		if err := all[n].open(); err != nil {
			return err
		}
	}
	fmt.Println("all are here")
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() { l.err = l.hear(count) })
	}
	wg.Wait()
	var late []time.Duration
	reads := 0
	for _, l := range all {
		if l.err != nil {
			return l.err
		}
		late, reads = append(late, l.late...), reads+l.reads
	}
	slices.Sort(late)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	fmt.Printf("writes/told=%.3f p50-ms=%.2f p99-ms=%.2f\n",
		float64(reads)/float64(len(late)), ms(late[len(late)/2]), ms(late[len(late)*99/100]))
	return nil
}

// listener is a minimal client.
type listener struct {
	conn  net.Conn
	rest  []byte
	reads int
	late  []time.Duration
	err   error
}

func (l *listener) open() error {
	if _, err := fmt.Fprint(l.conn, "GET /stream HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer ann\r\n\r\n"); err != nil {
		return err
	}
	for !bytes.Contains(l.rest, []byte(`"message":"connected"`)) {
		if err := l.read(); err != nil {
			return err
		}
	}
	l.rest, l.reads = nil, 0
	return nil
}

func (l *listener) read() error {
	var into [16 << 10]byte
	n, err := l.conn.Read(into[:])
	l.reads++
	l.rest = append(l.rest, into[:n]...)
	return err
}

// hear reads count events and checks that each comes once and in order.
func (l *listener) hear(count int) error {
	for n := 0; n < count; {
		_, after, ok := bytes.Cut(l.rest, []byte(`"groupName":"at-`))
		name, rest, whole := bytes.Cut(after, []byte(`"`))
		if !ok || !whole {
			if err := l.read(); err != nil {
				return fmt.Errorf("after %d events: %w", n, err)
			}
			continue
		}
		at, number, _ := strings.Cut(string(name), "-number-")
		nanos, err := strconv.ParseInt(at, 10, 64)
		if err != nil || number != strconv.Itoa(n) {
			return fmt.Errorf("heard of %s in the place of number %d", name, n)
		}
		l.late = append(l.late, time.Since(time.Unix(0, nanos)))
		l.rest = append(l.rest[:0], rest...)
		n++
	}
	return nil
}
