package fleet

import "encoding/json"

// DeclaredGroup is a group as a source wants it. The owner of the source in templatesvc
// writes it; the gateway makes the group so.
type DeclaredGroup struct {
	Rev
	Source string    `json:"source"`
	Group  GroupName `json:"group"`
	// Spec is the group in the words of /api/v1.
	Spec json.RawMessage `json:"spec,omitempty"`
	// File and Commit say where it stands.
	File   string `json:"file,omitempty"`
	Commit string `json:"commit,omitempty"`
	// Removed is the order to delete the group: its file is gone. A record that is
	// merely missing orders nothing.
	Removed bool `json:"removed,omitempty"`
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
