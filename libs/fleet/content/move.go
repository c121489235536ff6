package content

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// MoveKind says why a template's head was moved.
type MoveKind string

// The kinds of moves.
const (
	MoveSource   MoveKind = "source" // its source changed
	MoveEdit     MoveKind = "edit"   // files were written, renamed or deleted through the API
	MoveImport   MoveKind = "import" // an archive was uploaded
	MoveSave     MoveKind = "save"   // files of a running instance were saved
	MoveRollback MoveKind = "rollback"
	MoveRetract  MoveKind = "retract" // the template was deleted or removed from its source
)

// TemplateMove is one move of a template's head. All moves together are the template's history.
// templatesvc creates it in the transaction that moves the head; it is removed only when it is
// old.
type TemplateMove struct {
	record.Rev
	TemplateRef
	// Number counts the template's moves from 1.
	Number int64 `json:"number"`
	// Digest is the new version, "" if the template was deleted. Previous is the version before,
	// "" for the first.
	Digest   string    `json:"digest,omitempty"`
	Previous string    `json:"previous,omitempty"`
	Kind     MoveKind  `json:"kind"`
	Author   string    `json:"author,omitempty"`
	Message  string    `json:"message,omitempty"`
	At       time.Time `json:"at"`
}

// TemplateDraft is an author's staged, unpublished changes. templatesvc writes it.
type TemplateDraft struct {
	record.Rev
	TemplateRef
	Author string `json:"author"`
	// Owner is the author's User.ID, which does not change when the user is renamed. It is empty
	// if the author is not a user; then Author identifies the owner.
	Owner string `json:"owner,omitempty"`
	// Base is the version the draft started from, "" for a new template. Digest is the manifest
	// with all edits so far.
	Base      string    `json:"base,omitempty"`
	Digest    string    `json:"digest"`
	Edits     int       `json:"edits"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// TemplateOperation remembers the result of a change of a template, so that a retry after a lost
// answer does not repeat it. templatesvc creates it together with the change, with a lease.
type TemplateOperation struct {
	record.Rev
	ID string `json:"id"`
	TemplateRef
	// Kind is the kind of the change, e.g. rollback. Request is the SHA-256 of its other
	// parameters: a different change under the same ID is refused.
	Kind    string `json:"kind,omitempty"`
	Request string `json:"request,omitempty"`
	// Digest is the version the change created, or "".
	Digest string    `json:"digest,omitempty"`
	At     time.Time `json:"at"`
}

// TemplateGone marks a removed template. Its history is deleted once the template can no longer be
// restored. templatesvc writes it with the removal.
type TemplateGone struct {
	record.Rev
	TemplateRef
	At time.Time `json:"at"`
}

// TemplatePublish marks a publish in progress, whose content is not yet part of a version. It has
// the lease of the replica that publishes. If the record is gone, the publish is refused.
type TemplatePublish struct {
	record.Rev
	ID        string    `json:"id"`
	Replica   string    `json:"replica"`
	What      string    `json:"what,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// TemplateDoomed is a version that is being deleted. It can no longer be used, but its content
// stays until nothing refers to it. templatesvc writes it.
type TemplateDoomed struct {
	record.Rev
	Version TemplateVersion `json:"version"`
	At      time.Time       `json:"at"`
}

// PreviousVersion returns the version an undo leads to: the head before the current one, where a
// rollback also undoes the moves after the version it restored. It is "" before the second version.
// moves are the moves of one template, oldest first; the oldest may be missing.
func PreviousVersion(moves []TemplateMove) string {
	var heads []string
	for i, m := range moves {
		if i == 0 && m.Previous != "" {
			heads = append(heads, m.Previous)
		}
		if below := len(heads) - 1; m.Kind == MoveRollback && below > 0 {
			for at, digest := range slices.Backward(heads[:below]) {
				if digest == m.Digest {
					heads = heads[:at]
					break
				}
			}
		}
		heads = append(heads, m.Digest)
	}
	if len(heads) < 2 {
		return ""
	}
	return heads[len(heads)-2]
}
