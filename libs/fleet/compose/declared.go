package compose

import (
	"encoding/json"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Declaration is common to the records of everything a source declares. The templatesvc replica
// that owns the source writes them; the gateway applies them.
type Declaration struct {
	Source string `json:"source"`
	// Spec is the wanted object in the format of /api/v1. If Universe is true, it is a group in
	// the format of Universe's configurations.
	Spec     json.RawMessage `json:"spec,omitempty"`
	Universe bool            `json:"universe,omitempty"`
	// File and Commit locate the declaration. Place is as in SourceStatus.
	File   string `json:"file,omitempty"`
	Commit string `json:"commit,omitempty"`
	Place  string `json:"place,omitempty"`
	// Removed orders the deletion because the file is gone. A missing record orders nothing.
	Removed bool `json:"removed,omitempty"`
}

// DeclaredGroup is a group declared by a source.
type DeclaredGroup struct {
	record.Rev
	Declaration
	Group fleet.GroupName `json:"group"`
}

// DeclaredCatalog is a catalog entry declared by a source: a version of a platform, or the
// platform itself with its recommended version.
type DeclaredCatalog struct {
	record.Rev
	Declaration
	Platform string `json:"platform"` // upper case
	// Version is empty for the platform itself.
	Version string `json:"version,omitempty"`
}

// Name returns PLATFORM or PLATFORM/version.
func (d DeclaredCatalog) Name() string {
	if d.Version == "" {
		return d.Platform
	}
	return d.Platform + "/" + d.Version
}

// Validate returns what is wrong with the names.
func (d DeclaredCatalog) Validate() []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(d.Platform) && d.Platform == strings.ToUpper(d.Platform), "platform", "%q is not a platform name: use upper-case letters, digits, _ . and -", validate.Clip(d.Platform))
	p.Check(d.Version == "" || validate.ValidSegment(d.Version), "version", "%q is not a version: use letters, digits, _ . and -", validate.Clip(d.Version))
	return p.List
}

// DeclaredState is the state of a declared group or catalog entry.
type DeclaredState string

// The states of a declaration.
const (
	DeclaredInSync   DeclaredState = "IN_SYNC"
	DeclaredFailed   DeclaredState = "FAILED"
	DeclaredConflict DeclaredState = "CONFLICT" // the object exists and does not belong to the source
	DeclaredRemoving DeclaredState = "REMOVING"
	DeclaredRemoved  DeclaredState = "REMOVED"
)

// DeclaredStatus is the result of applying a declared group or catalog entry. The gateway writes
// it.
type DeclaredStatus struct {
	record.Rev
	Source string          `json:"source"`
	Group  fleet.GroupName `json:"group,omitempty"`
	// Catalog is DeclaredCatalog.Name. It is empty for a group.
	Catalog string `json:"catalog,omitempty"`
	// Observed is the mod-revision of the declaration this status is about.
	Observed int64         `json:"observed"`
	State    DeclaredState `json:"state"`
	Message  string        `json:"message,omitempty"`
}

// Name returns the name of the catalog entry or group.
func (s DeclaredStatus) Name() string {
	if s.Catalog != "" {
		return s.Catalog
	}
	return string(s.Group)
}

// Limits on what one source declares.
const (
	MaxDeclaredGroups  = 500
	MaxDeclaredCatalog = 1000 // platforms and versions
	MaxDeclaredBytes   = validate.MaxSpecBytes
)
