package fleet

import "encoding/json"

// Declaration is what the records of all that a source wants have in common. The owner
// of the source in templatesvc writes them; the gateway does what they say.
type Declaration struct {
	Source string `json:"source"`
	// Spec is what is wanted, in the words of /api/v1.
	Spec json.RawMessage `json:"spec,omitempty"`
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

// DeclaredState is how a declared group stands.
type DeclaredState string

// The states of a declared group.
const (
	DeclaredInSync   DeclaredState = "IN_SYNC"
	DeclaredFailed   DeclaredState = "FAILED"
	DeclaredConflict DeclaredState = "CONFLICT" // the group is not the source's
	DeclaredRemoving DeclaredState = "REMOVING"
	DeclaredRemoved  DeclaredState = "REMOVED"
)

// DeclaredStatus is what came of a declared group; written by the gateway.
type DeclaredStatus struct {
	Rev
	Source string    `json:"source"`
	Group  GroupName `json:"group"`
	// Observed is the mod-revision of the record this is about.
	Observed int64         `json:"observed"`
	State    DeclaredState `json:"state"`
	Message  string        `json:"message,omitempty"`
}

// Bounds of what one source declares.
const (
	MaxDeclaredGroups = 500
	MaxDeclaredBytes  = maxSpecBytes
)
