// Package origin is what the sources of templates have in common: what they bring,
// how its paths become templates, and connections that never wait for ever.
//
// Invariants: a Holding is complete, or there is none: what cannot be read wholly is an
// error, and nobody takes what is missing for removed; nothing a source sends is kept
// before its hash or its structure was checked.
package origin

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Request asks for what a source holds.
type Request struct {
	Source      fleet.TemplateSource
	Credentials fleet.SourceCredentials
	// Seen is the revision that was brought before: when the source still has it,
	// nothing is brought. "" brings all of it.
	Seen string
	// At is the Holding.Place where that was; elsewhere it is brought all the same.
	At string
	// Attended says that a user asked for this look: what is missing was removed on purpose.
	Attended bool
	// Spool is the directory for what is kept on disk meanwhile.
	Spool string
	// Dialer makes the connections.
	Dialer Dialer
}

// Holding is all that a source holds. Nil says that nothing changed.
type Holding struct {
	// Revision names the state of the source: a commit, a hash.
	Revision string
	// Place is where it was found, of a kind whose record does not say that: the record's
	// Place, and what tells one from another. "" is the record's.
	Place string
	// Moment is given by what is read as it stands, where a commit is somebody's deed as a
	// whole: it changes whenever a name comes or goes. What is declared there no more goes
	// when it was missing for a while at one moment.
	Moment    string
	Templates []Template
	// Groups are those it declares, Commit empty; nil when it declares none.
	Groups []fleet.DeclaredGroup
	// Catalog are the entries it declares, as Groups.
	Catalog []fleet.DeclaredCatalog
	// Close gives back what is kept on disk meanwhile; nil when there is nothing.
	Close func()
}

// PlaceOf is where a holding of a source was found.
func (h *Holding) PlaceOf(s fleet.TemplateSource) string { return cmp.Or(h.Place, s.Place()) }

// Add stores a file's bytes, at most limit of them.
type Add func(r io.Reader, limit int64) (fleet.Content, error)

// Template is one template that a source holds.
type Template struct {
	Ref fleet.TemplateRef
	// Manifest reads it: every file is given to add.
	Manifest func(ctx context.Context, add Add) (fleet.Manifest, error)
}

// Place is where a path of a source lies: in which template, and where inside. ok is
// false for what lies in none.
func Place(s fleet.TemplateSource, p string) (ref fleet.TemplateRef, inside string, ok bool) {
	if s.Template != (fleet.TemplateRef{}) {
		return s.Template, p, true
	}
	if ref.Group = s.Group; ref.Group == "" {
		if ref.Group, p, ok = strings.Cut(p, "/"); !ok {
			return ref, "", false
		}
	}
	if ref.Name, inside, ok = strings.Cut(p, "/"); !ok {
		return ref, "", false
	}
	return ref, inside, ref.Valid()
}

// CheckCount refuses a source that holds too many templates.
func CheckCount(n int) error {
	if n > fleet.MaxSourceTemplates {
		return errs.New(errs.TooLarge, "the source holds more than %d templates: make several sources of it", fleet.MaxSourceTemplates)
	}
	return nil
}
