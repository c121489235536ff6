// Package casefold finds names that some file systems treat as the same: those that differ
// only in case or in Unicode normalization.
package casefold

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Key returns the same string for all names that a file system may treat as the same.
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

// Check returns Invalid, with both paths, when two paths of a template or their directories
// are the same on some file systems. content.Manifest.Canonical already checks ASCII paths.
func Check(m content.Manifest) error {
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

// Same returns the error for two names that are the same on some file systems. If they look
// the same, it shows their code points.
func Same(kind errs.Kind, one, other string) error {
	if norm.NFC.String(one) == norm.NFC.String(other) {
		return errs.New(kind, "%+.120q and %+.120q differ only in how their letters are put together (Unicode normalisation), and are one file on some systems: rename one", one, other)
	}
	return errs.New(kind, "%.120q and %.120q differ only in case, and are one file on some systems: rename one", one, other)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}
