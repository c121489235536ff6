package fleet

import (
	"encoding/json"
	"strings"
)

// Declaration is what the records of all that a source wants have in common. The owner
// of the source in templatesvc writes them; the gateway does what they say.
type Declaration struct {
	Source string `json:"source"`
	// Spec is what is wanted, in the words of /api/v1, or, of a group, in those of Universe's
	// configurations.
	Spec     json.RawMessage `json:"spec,omitempty"`
	Universe bool            `json:"universe,omitempty"`
	// File and Commit say where it stands; Place as in SourceStatus.
	File   string `json:"file,omitempty"`
	Commit string `json:"commit,omitempty"`
	Place  string `json:"place,omitempty"`
	// Removed is the order to delete it: its file is gone. A record that is merely
	// missing orders nothing.
	Removed bool `json:"removed,omitempty"`
}

// DeclaredGroup is a group as a source wants it.
type DeclaredGroup struct {
	Rev
	Declaration
	Group GroupName `json:"group"`
}

// DeclaredCatalog is an entry of the catalog as a source wants it: a version of a
// platform, or the platform itself, which says what version is recommended.
type DeclaredCatalog struct {
	Rev
	Declaration
	Platform string `json:"platform"` // upper case
	// Version is "" for the platform itself.
	Version string `json:"version,omitempty"`
}

// Name is PLATFORM, or PLATFORM/version.
func (d DeclaredCatalog) Name() string {
	if d.Version == "" {
		return d.Platform
	}
	return d.Platform + "/" + d.Version
}

// Validate lists what is wrong with the names.
func (d DeclaredCatalog) Validate() []error {
	var p problems
	p.check(validSegment(d.Platform) && d.Platform == strings.ToUpper(d.Platform), "platform", "%q is not a platform's name: upper-case letters, digits, _ . and -", clip(d.Platform))
	p.check(d.Version == "" || validSegment(d.Version), "version", "%q is not a version: letters, digits, _ . and -", clip(d.Version))
	return p.list
}

// DeclaredState is how a declared group, or entry of the catalog, stands.
type DeclaredState string

// The states of what is declared.
const (
	DeclaredInSync   DeclaredState = "IN_SYNC"
	DeclaredFailed   DeclaredState = "FAILED"
	DeclaredConflict DeclaredState = "CONFLICT" // it is not the source's
	DeclaredRemoving DeclaredState = "REMOVING"
	DeclaredRemoved  DeclaredState = "REMOVED"
)

// DeclaredStatus is what came of a declared group, or entry of the catalog; written by
// the gateway.
type DeclaredStatus struct {
	Rev
	Source string    `json:"source"`
	Group  GroupName `json:"group,omitempty"`
	// Catalog is the entry's name, see DeclaredCatalog; "" for a group.
	Catalog string `json:"catalog,omitempty"`
	// Observed is the mod-revision of the record this is about.
	Observed int64         `json:"observed"`
	State    DeclaredState `json:"state"`
	Message  string        `json:"message,omitempty"`
}

// Name is the group's, or the entry's.
func (s DeclaredStatus) Name() string {
	if s.Catalog != "" {
		return s.Catalog
	}
	return string(s.Group)
}

// Bounds of what one source declares.
const (
	MaxDeclaredGroups  = 500
	MaxDeclaredCatalog = 1000 // platforms and versions
	MaxDeclaredBytes   = maxSpecBytes
)
