package account_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet/account"
)

func TestShareTextRoundTrip(t *testing.T) {
	for _, text := range []string{"", "one line", "first\nsecond\n", strings.Repeat("ümläut\n", 1000)} {
		kept, n := account.NewShareText("x", text)
		if got, err := kept.Read(); err != nil || got != text || n != len(text) {
			t.Errorf("%.20q: %.20q, %d, %v", text, got, n, err)
		}
	}
}

func TestTooLargeShareTextKeepsLastLines(t *testing.T) {
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
		kept, n := account.NewShareText("x", text)
		got, err := kept.Read()
		if err != nil || len(got) != n || n >= len(text) || n > account.MaxShareText || len(kept.Text) > 700<<10 {
			t.Errorf("%s: %d of %d bytes, %d stored, %v", name, n, len(text), len(kept.Text), err)
		}
		before := strings.TrimSuffix(text, got)
		if !strings.HasSuffix(text, got) || !utf8.ValidString(got) || strings.Contains(text, "\n") && !strings.HasSuffix(before, "\n") {
			t.Errorf("%s: kept from %.40q", name, got)
		}
	}
}

func TestDamagedShareTextIsAnError(t *testing.T) {
	kept, _ := account.NewShareText("x", strings.Repeat("text", 100))
	for _, damaged := range [][]byte{nil, []byte("x"), kept.Text[:len(kept.Text)/2]} {
		if text, err := (&account.ShareText{Text: damaged}).Read(); err == nil {
			t.Errorf("read %q", text)
		}
	}
}

func TestShareEndsByExpiryReadOrRevocation(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		share account.Share
		want  bool
	}{
		"for ever":  {account.Share{}, true},
		"not yet":   {account.Share{ExpiresAt: now.Add(1)}, true},
		"just now":  {account.Share{ExpiresAt: now}, false},
		"revoked":   {account.Share{RevokedAt: now}, false},
		"once read": {account.Share{BurnedAt: now, ExpiresAt: now.Add(1)}, false},
	} {
		if got := c.share.Active(now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
