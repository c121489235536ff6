package ports

import (
	"encoding/hex"
	"testing"
)

func FuzzParse(f *testing.F) {
	answer := make([]byte, answerSize)
	answer[0], answer[1] = 2, timeWait
	f.Add(answer)
	f.Add(answer[:answerSize-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, local, ok := parse(b)
		if ok != (len(b) >= answerSize) || local < 0 || local > 65535 {
			t.Errorf("%s: %+v, %d, %v", hex.EncodeToString(b), s, local, ok)
		}
	})
}
