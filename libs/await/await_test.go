package await_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/await"
)

// attempt is a test whose failure is inspected.
type attempt struct {
	testing.TB
	said string
}

func (a *attempt) Helper() {}

func (a *attempt) Fatalf(format string, args ...any) {
	a.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fails runs a test and returns its failure message, "" if it passed.
func fails(t *testing.T, test func(t testing.TB)) string {
	a := &attempt{TB: t}
	var done sync.WaitGroup
	done.Go(func() { test(a) })
	done.Wait()
	return a.said
}

func TestAWaitEndsWhenItsCheckHasNothingToSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		said := fails(t, func(t testing.TB) {
			await.That(t, "the third look", func() string {
				looks++
				return await.Unless(looks == 3, "look %d", looks)
			})
		})
		if said != "" || looks != 3 {
			t.Errorf("%d looks, failed with %q", looks, said)
		}
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("two pauses took %v", took)
		}
	})
}

func TestTimeoutPrintsTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, looks := time.Now(), 0
		said := fails(t, func(t testing.TB) {
			await.That(t, "the end", func() string {
				looks++
				return fmt.Sprint("look ", looks)
			})
		})
		if want := fmt.Sprint("timed out waiting for the end; last state: look ", looks); said != want {
			t.Errorf("failed with %q, want %q", said, want)
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestWhatIsNotAsItShouldBeIsNeverSilent(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{await.Unless(true, "%d left", 3), ""},
		{await.Unless(false, "%d left", 3), "3 left"},
		{await.Unless(false, "%s", ""), "nothing"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestTextIsReadWhileItIsWritten(t *testing.T) {
	const writers, lines = 4, 100
	var text await.Text
	if text.String() != "" {
		t.Error("not empty at first")
	}
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range lines {
				_, _ = io.WriteString(&text, "line\n")
			}
		})
	}
	await.That(t, "all lines", func() string {
		n := strings.Count(text.String(), "line\n")
		return await.Unless(n == writers*lines, "%d lines", n)
	})
	writing.Wait()
}
