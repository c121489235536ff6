package artifact

import (
	"encoding/hex"
	"testing"
)

func FuzzAHashFileGivesAHashOrNone(f *testing.F) {
	f.Add("d41d8cd98f00b204e9800998ecf8427e *a.jar\n", "a.jar")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, text, name string) {
		d, ok := parse(text, name)
		if !ok {
			return
		}
		if b, err := hex.DecodeString(d.sum); err != nil || d.hash().Size() != len(b) || d.revision() == "" {
			t.Errorf("%+v of %q", d, text)
		}
	})
}
