package seal_test

import (
	"bytes"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/seal"
)

func TestOpenRequiresSecretAndKind(t *testing.T) {
	box := seal.NewBox
	mine := box("secret", "kind")
	sealed := mine.Seal([]byte("plain"))
	if got, err := mine.Open(sealed); err != nil || string(got) != "plain" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := mine.About("a").Open(mine.About("a").Seal([]byte("plain"))); err != nil || string(got) != "plain" {
		t.Errorf("about a subject: %q, %v", got, err)
	}
	if bytes.Contains(sealed, []byte("plain")) || bytes.Equal(sealed, mine.Seal([]byte("plain"))) {
		t.Error("it can be read, or told from another")
	}
	sealed[len(sealed)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"changed":         func() ([]byte, error) { return mine.Open(sealed) },
		"another secret":  func() ([]byte, error) { return box("other", "kind").Open(mine.Seal([]byte("plain"))) },
		"another subject": func() ([]byte, error) { return mine.About("b").Open(mine.About("a").Seal([]byte("plain"))) },
		"no subject":      func() ([]byte, error) { return mine.Open(mine.About("a").Seal([]byte("plain"))) },
		"another kind":    func() ([]byte, error) { return box("secret", "other").Open(mine.Seal([]byte("plain"))) },
		"nothing":         func() ([]byte, error) { return mine.Open(nil) },
	} {
		if got, err := open(); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "cluster.secret" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
