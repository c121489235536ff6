// Package sources has what all sources of templates share: the content they return, the
// mapping of their paths to templates, and connections with timeouts.
//
// Invariants: A Holding is complete. If a source cannot be read completely, that is an
// error, so missing parts do not count as removed. Data from a source is stored only after
// its hash or its structure was checked.
package sources

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Request describes what to read from a source.
type Request struct {
	Source      content.TemplateSource
	Credentials content.SourceCredentials
	// Seen is the revision that was read last. If the source still has it, the source
	// returns nothing. "" requests everything.
	Seen string
	// At is the Holding.Place of Seen. If the source is at another place now, it returns
	// everything.
	At string
	// Attended is true when a user requested this look. Missing objects then count as
	// removed on purpose.
	Attended bool
	// Spool is the directory for temporary files.
	Spool string
	// Dialer makes the connections.
	Dialer Dialer
}

// Holding is the complete content of a source. A nil Holding means that nothing has
// changed.
type Holding struct {
	// Revision identifies the state of the source: a commit or a hash.
	Revision string
	// Place is where the source was found, for kinds whose record does not say that
	// exactly: the record's Place plus something that distinguishes it. "" means the
	// record's Place.
	Place string
	// Moment is set for sources that are read in place, such as a directory, which have no
	// commits. It changes whenever a name appears or disappears. Objects that are no longer
	// declared are removed once they have been missing for a while without a new Moment.
	Moment    string
	Templates []Template
	// Groups are the groups that the source declares, with an empty Commit. Nil means none.
	Groups []compose.DeclaredGroup
	// Catalog is like Groups, for catalog entries.
	Catalog []compose.DeclaredCatalog
	// Close removes temporary files; may be nil.
	Close func()
}

// PlaceOf returns where a holding of a source was found.
func (h *Holding) PlaceOf(s content.TemplateSource) string { return cmp.Or(h.Place, s.Place()) }

// Add stores the content of a file, at most limit bytes.
type Add func(r io.Reader, limit int64) (content.Content, error)

// Template is one template of a source.
type Template struct {
	Ref content.TemplateRef
	// Manifest reads the template and passes the content of each file to add.
	Manifest func(ctx context.Context, add Add) (content.Manifest, error)
}

// Place maps a path in a source to a template and a path inside that. ok is false if the
// path belongs to no template.
func Place(s content.TemplateSource, p string) (ref content.TemplateRef, inside string, ok bool) {
	if s.Template != (content.TemplateRef{}) {
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

// CheckCount returns TooLarge if a source holds too many templates.
func CheckCount(n int) error {
	if n > content.MaxSourceTemplates {
		return errs.New(errs.TooLarge, "the source holds more than %d templates: make several sources of it", content.MaxSourceTemplates)
	}
	return nil
}
