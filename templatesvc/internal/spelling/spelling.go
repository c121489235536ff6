// Package spelling knows which names some file systems hold for one: those that differ in
// case, or in how their letters are put together (é of one code point, or of two).
package spelling

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Key is the same for all spellings of a name.
func Key(name string) string {
	folded := strings.Map(fold, norm.NFC.String(name))
	return norm.NFC.String(folded)
}

// fold maps all cases of a letter to one.
func fold(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return unicode.ToLower(least)
}

// Check refuses a template in which two paths, or directories of them, are one to some
// file system. Invalid names both. Those of ASCII alone are checked by
// fleet.Manifest.Canonical.
func Check(m fleet.Manifest) error {
	keys := map[string]string{}
	for i := range m.Entries {
		p := m.Entries[i].Path
		if isASCII(p) {
			continue
		}
		for end := range len(p) + 1 {
			if end < len(p) && p[end] != '/' {
				continue
			}
			key := Key(p[:end])
			if other, ok := keys[key]; ok && other != p[:end] {
				return Same(errs.Invalid, other, p[:end])
			}
			keys[key] = p[:end]
		}
	}
	return nil
}

// Same is the error for two spellings of one name. What cannot be told apart by looking
// at it is told by its code points.
func Same(kind errs.Kind, one, other string) error {
	if norm.NFC.String(one) == norm.NFC.String(other) {
		return errs.New(kind, "%+.120q and %+.120q differ only in how their letters are put together (Unicode normalisation), and are one file on some systems: rename one", one, other)
	}
	return errs.New(kind, "%.120q and %.120q differ only in case, and are one file on some systems: rename one", one, other)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}
