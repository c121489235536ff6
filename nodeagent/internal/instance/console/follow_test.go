package console_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// follower runs a follower until the test ends.
func follower(t *testing.T) *console.Follower {
	f := console.NewFollower(discard())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

func add(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// told fails the test when a channel stays open.
func told(t *testing.T, what string, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(await.Patience):
		t.Fatalf("nobody told: %s", what)
	}
}

func TestNewOutputWakesEveryViewer(t *testing.T) {
	f, path := follower(t), write(t, "")
	one, two := f.Follow(path), f.Follow(path)
	defer two.Close()
	a, b := one.Changed(), two.Changed()
	add(t, path, "hello\n")
	told(t, "the first", a)
	told(t, "the second", b)
	one.Close()
	one.Close()
	b = two.Changed()
	add(t, path, "again\n")
	told(t, "who stays when another goes", b)
}

func TestFollowOfMissingLog(t *testing.T) {
	f, path := follower(t), filepath.Join(t.TempDir(), "log")
	w := f.Follow(path)
	defer w.Close()
	changed := w.Changed()
	add(t, path, "hello\n")
	f.Maintain(path, 1<<20, true)
	told(t, "the beginning", changed)
	changed = w.Changed()
	add(t, path, "more\n")
	told(t, "more", changed)
}

func TestMaintainedLogStaysBelowLimit(t *testing.T) {
	f, path := follower(t), write(t, "")
	const limit = 1 << 20
	f.Maintain(path, limit, true)
	defer f.Release(path)
	line := strings.Repeat("x", 99) + "\n"
	for range 40 {
		add(t, path, strings.Repeat(line, 1000))
	}
	await.That(t, "the head to be given back", func() string {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err.Error()
		}
		return await.Unless(st.Size == 4_000_000 && st.Blocks*512 <= limit+limit/4, "%d bytes on disk of %d", st.Blocks*512, st.Size)
	})
	lines, err := tail(path, 2)
	if err != nil || len(lines) != 2 || lines[1].Offset != 4_000_000-100 {
		t.Errorf("%v, %v", lines, err)
	}
	all, err := tail(path, console.MaxLines)
	if err != nil || len(all) < 9000 || all[0].Text != line[:99] {
		t.Errorf("%d lines, the first %q, %v", len(all), all[0].Text, err)
	}
}

func TestViewerGetsEverythingInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	v := console.NewViewer(path, 0)
	defer v.Close()
	if p, err := v.Next(false); err != nil || p.Next != 0 {
		t.Fatalf("of no log: %+v, %v", p, err)
	}
	var got, want strings.Builder
	for n := range 3000 {
		line := fmt.Sprintf("line %d %s\n", n, strings.Repeat("y", n%300))
		want.WriteString(line)
		add(t, path, line[:n%len(line)])
		read(t, v, &got, false)
		add(t, path, line[n%len(line):])
		read(t, v, &got, false)
	}
	if got.String() != want.String() {
		t.Errorf("%d bytes of %d", got.Len(), want.Len())
	}
}

// read appends what a viewer has now; it must be whole lines.
func read(t *testing.T, v *console.Viewer, into *strings.Builder, last bool) (skipped int64) {
	t.Helper()
	for {
		p, err := v.Next(last)
		if err != nil {
			t.Fatal(err)
		}
		if p.Next == p.From {
			return skipped
		}
		if p.Skipped != nil {
			skipped += p.Skipped.Lines
		}
		if len(p.Data) > 0 && p.Data[len(p.Data)-1] != '\n' && !last && len(p.Data) < console.MaxLine-3 {
			t.Fatalf("a piece ends in the middle of a line: %q", p.Data)
		}
		into.Write(p.Data)
	}
}

func TestViewerNeverSkipsExistingOutput(t *testing.T) {
	text := strings.Repeat("0123456789\n", 400_000)
	v := console.NewViewer(write(t, text), 0)
	defer v.Close()
	var got strings.Builder
	if skipped := read(t, v, &got, false); skipped != 0 || got.String() != text {
		t.Errorf("%d bytes of %d, %d lines left out", got.Len(), len(text), skipped)
	}
}

func TestViewerSkipsAndCountsFlood(t *testing.T) {
	path := write(t, "first\n")
	v := console.NewViewer(path, 0)
	defer v.Close()
	var got strings.Builder
	read(t, v, &got, false)
	add(t, path, strings.Repeat("0123456789\n", 400_000))
	skipped := read(t, v, &got, false)
	if lines := int64(strings.Count(got.String(), "\n")); skipped == 0 || lines+skipped != 400_001 {
		t.Errorf("%d lines shown, %d left out", lines, skipped)
	}
	if !strings.HasPrefix(got.String(), "first\n0123456789\n") {
		t.Errorf("the rest begins in a line: %q", got.String()[:20])
	}
}

func TestUnfinishedLineIsShownAtEnd(t *testing.T) {
	path := write(t, "one\ntwo")
	v := console.NewViewer(path, 0)
	defer v.Close()
	var got strings.Builder
	if read(t, v, &got, false); got.String() != "one\n" {
		t.Errorf("%q", got.String())
	}
	if read(t, v, &got, true); got.String() != "one\ntwo" {
		t.Errorf("%q", got.String())
	}
}

func TestEndlessLineComesInParts(t *testing.T) {
	text := strings.Repeat("☃", 100_000) + "\n"
	v := console.NewViewer(write(t, text), 0)
	defer v.Close()
	var got strings.Builder
	if read(t, v, &got, false); got.String() != text {
		t.Errorf("%d bytes of %d", got.Len(), len(text))
	}
}

func TestViewerSkipsDiscardedOutput(t *testing.T) {
	path := write(t, strings.Repeat("0123456789\n", 100_000))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 512<<10); err != nil {
		t.Fatal(err)
	}
	v := console.NewViewer(path, 11)
	defer v.Close()
	p, err := v.Next(false)
	if err != nil || p.Skipped == nil || p.From != 11 || p.Next <= 512<<10 || p.Next%11 != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err = v.Next(false); err != nil || !strings.HasPrefix(string(p.Data), "0123456789\n") {
		t.Errorf("%.20q, %v", p.Data, err)
	}
}

func TestOffsetAfterEndIsTheEnd(t *testing.T) {
	path := write(t, "one\n")
	v := console.NewViewer(path, 1000)
	defer v.Close()
	var got strings.Builder
	read(t, v, &got, false)
	add(t, path, "two\n")
	if read(t, v, &got, false); got.String() != "two\n" {
		t.Errorf("%q", got.String())
	}
}

func TestPaceAllowsBurstThenRate(t *testing.T) {
	var p console.Pace
	now := time.Unix(1e9, 0)
	if d := p.Spend(console.Burst, now); d != 0 {
		t.Errorf("the burst waits %v", d)
	}
	if d := p.Spend(console.Rate, now); d != time.Second {
		t.Errorf("what is beyond waits %v", d)
	}
	if d := p.Spend(console.Rate, now.Add(2*time.Second)); d != 0 {
		t.Errorf("after a rest %v", d)
	}
}
