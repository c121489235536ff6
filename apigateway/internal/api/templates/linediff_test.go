package templates

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestADifferenceIsToldInHunks(t *testing.T) {
	var old []string
	for i := range 30 {
		old = append(old, string(rune('a'+i%26)))
	}
	next := append([]string(nil), old...)
	next[2], next[20] = "C", "U"
	next = append(next, "end")
	got := unified("f", strings.Join(old, "\n"), strings.Join(next, "\n")+"\n")
	want := `--- a/f
+++ b/f
@@ -1,6 +1,6 @@
 a
 b
-c
+C
 d
 e
 f
@@ -18,7 +18,7 @@
 r
 s
 t
-u
+U
 v
 w
 x
@@ -27,4 +27,5 @@
 a
 b
 c
-d
\ No newline at end of file
+d
+end
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if same := unified("f", "a\n", "a\n"); same != "" {
		t.Errorf("no difference is %q", same)
	}
	if made := unified("f", "", "x\n"); made != "--- a/f\n+++ b/f\n@@ -0,0 +1,1 @@\n+x\n" {
		t.Errorf("a new file is %q", made)
	}
}

func TestAComparisonHoldsBothTexts(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		text := func() (out []string) {
			for range r.IntN(12) {
				out = append(out, string(rune('a'+r.IntN(4)))+"\n")
			}
			return out
		}
		a, b := text(), text()
		var old, next string
		for _, l := range compareLines(a, b) {
			if l.mark != '+' {
				old += l.text
			}
			if l.mark != '-' {
				next += l.text
			}
		}
		if old != strings.Join(a, "") || next != strings.Join(b, "") {
			t.Fatalf("seed %d: %q and %q of %q and %q", seed, old, next, a, b)
		}
	}
}
