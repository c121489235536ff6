package fleet

import "time"

// MoveKind is why a template's head was moved.
type MoveKind string

// The kinds of moves.
const (
	MoveSource   MoveKind = "source" // its source has changed
	MoveEdit     MoveKind = "edit"   // files were written, renamed or deleted through the API
	MoveImport   MoveKind = "import" // an archive was uploaded
	MoveSave     MoveKind = "save"   // files of a running instance were saved
	MoveRollback MoveKind = "rollback"
	MoveRetract  MoveKind = "retract" // the template was deleted, or its source has it no more
)

// TemplateMove is one move of a template's head: all of them are its history. Created by
// templatesvc in the transaction that moves the head, and removed only with age.
type TemplateMove struct {
	Rev
	TemplateRef
	// Number counts the template's moves from 1.
	Number int64 `json:"number"`
	// Digest is the version the head was moved to, "" when it was retracted; Previous the
	// one before, "" when there was none.
	Digest   string    `json:"digest,omitempty"`
	Previous string    `json:"previous,omitempty"`
	Kind     MoveKind  `json:"kind"`
	Author   string    `json:"author,omitempty"`
	Message  string    `json:"message,omitempty"`
	At       time.Time `json:"at"`
}

// TemplateDraft is what one author has staged and not published. Written by templatesvc.
type TemplateDraft struct {
	Rev
	TemplateRef
	Author string `json:"author"`
	// Owner is whose it is, whatever the author is called meanwhile: User.ID; "" for who is
	// no user, whose name tells.
	Owner string `json:"owner,omitempty"`
	// Base is the version it was begun from, "" for a template that did not exist; Digest
	// the manifest it has come to.
	Base      string    `json:"base,omitempty"`
	Digest    string    `json:"digest"`
	Edits     int       `json:"edits"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// TemplateOperation remembers what a change of a template came to, so that one whose
// answer was lost is not made twice when it is asked for again. Created by templatesvc
// with the change, on a lease.
type TemplateOperation struct {
	Rev
	ID string `json:"id"`
	TemplateRef
	// Kind is what kind of change it was, such as rollback, and Request the SHA-256 of what
	// else it was asked for with: another change under the same name is refused.
	Kind    string `json:"kind,omitempty"`
	Request string `json:"request,omitempty"`
	// Digest is the version the change made, "" where it made none.
	Digest string    `json:"digest,omitempty"`
	At     time.Time `json:"at"`
}

// TemplateGone says that a template was removed: its history follows once nobody can want
// it back. Written by templatesvc with the removal.
type TemplateGone struct {
	Rev
	TemplateRef
	At time.Time `json:"at"`
}

// TemplatePublish says that content is being stored which no version names yet. It
// stands on the lease of the replica that does it: a publish whose record is gone is refused.
type TemplatePublish struct {
	Rev
	ID        string    `json:"id"`
	Replica   string    `json:"replica"`
	What      string    `json:"what,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// TemplateDoomed is a version that is being deleted: it is no version any more, and its
// content stays until nothing can refer to it. Written by templatesvc.
type TemplateDoomed struct {
	Rev
	Version TemplateVersion `json:"version"`
	At      time.Time       `json:"at"`
}

// PreviousVersion is the version that was the head before the present one, as somebody
// sees it who undoes moves: a rollback takes back what came after the version it leads
// to. "" when there was none. Moves are a template's, oldest first; the oldest may be
// missing.
func PreviousVersion(moves []TemplateMove) string {
	var heads []string
	for i, m := range moves {
		if i == 0 && m.Previous != "" {
			heads = append(heads, m.Previous)
		}
		if below := len(heads) - 1; m.Kind == MoveRollback && below > 0 {
			if at := lastIndex(heads[:below], m.Digest); at >= 0 {
				heads = heads[:at]
			}
		}
		heads = append(heads, m.Digest)
	}
	if len(heads) < 2 {
		return ""
	}
	return heads[len(heads)-2]
}

func lastIndex(s []string, want string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == want {
			return i
		}
	}
	return -1
}
