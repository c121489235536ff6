package fleet_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestASharedTextIsReadAsItWas(t *testing.T) {
	for _, text := range []string{"", "one line", "first\nsecond\n", strings.Repeat("ümläut\n", 1000)} {
		kept, n := fleet.NewShareText("x", text)
		if got, err := kept.Read(); err != nil || got != text || n != len(text) {
			t.Errorf("%.20q: %.20q, %d, %v", text, got, n, err)
		}
	}
}

func TestOfATextThatIsTooLargeTheLastLinesAreKept(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	var random strings.Builder
	for random.Len() < 3<<20 {
		for range 60 {
			random.WriteByte(byte('!' + noise.IntN(90)))
		}
		random.WriteByte('\n')
	}
	for name, text := range map[string]string{
		"long": strings.Repeat("a line\n", 1<<20) + "the end", "hard to compress": random.String() + "the end",
		"one line": strings.Repeat("ü", 3<<20) + "the end",
	} {
		kept, n := fleet.NewShareText("x", text)
		got, err := kept.Read()
		if err != nil || len(got) != n || n >= len(text) || n > fleet.MaxShareText || len(kept.Text) > 700<<10 {
			t.Errorf("%s: %d of %d bytes, %d stored, %v", name, n, len(text), len(kept.Text), err)
		}
		before := strings.TrimSuffix(text, got)
		if !strings.HasSuffix(text, got) || !utf8.ValidString(got) || strings.Contains(text, "\n") && !strings.HasSuffix(before, "\n") {
			t.Errorf("%s: kept from %.40q", name, got)
		}
	}
}

func TestADamagedTextIsAnError(t *testing.T) {
	kept, _ := fleet.NewShareText("x", strings.Repeat("text", 100))
	for _, damaged := range [][]byte{nil, []byte("x"), kept.Text[:len(kept.Text)/2]} {
		if text, err := (&fleet.ShareText{Text: damaged}).Read(); err == nil {
			t.Errorf("read %q", text)
		}
	}
}

func TestAShareEndsByItsTimeByBeingReadAndByBeingRevoked(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		share fleet.Share
		want  bool
	}{
		"for ever":  {fleet.Share{}, true},
		"not yet":   {fleet.Share{ExpiresAt: now.Add(1)}, true},
		"just now":  {fleet.Share{ExpiresAt: now}, false},
		"revoked":   {fleet.Share{RevokedAt: now}, false},
		"once read": {fleet.Share{BurnedAt: now, ExpiresAt: now.Add(1)}, false},
	} {
		if got := c.share.Active(now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
