package content

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// TemplateDirectory is the state of the template directory of one templatesvc replica. The replica
// writes it. Another replica removes it when that one has no session.
type TemplateDirectory struct {
	record.Rev
	Replica string `json:"replica"`
	// ID identifies the directory independently of where it is mounted. It is empty for an empty directory.
	ID      string      `json:"id,omitempty"`
	State   SourceState `json:"state"`
	Message string      `json:"message,omitempty"`
	// Held is as in SourceStatus.
	Held string `json:"held,omitempty"`
	// Items are the templates that are not published as they are, or that have a message, by name:
	// the first MaxSourceTemplates of them.
	Items []SourceItem `json:"items,omitempty"`
	// Since is when the replica first reported a directory. At is when it last read the directory
	// after a start, a request, or a change of this status.
	Since time.Time `json:"since,omitzero"`
	At    time.Time `json:"at"`
}

// DirectoryMemory is what a templatesvc replica must remember about its template directory across
// restarts, even under another replica name. The replica writes it. When it has no session,
// another replica that runs in the same Place takes the record over.
type DirectoryMemory struct {
	record.Rev
	// ID is TemplateDirectory.ID. Empty means nothing is known.
	ID      string `json:"id"`
	Replica string `json:"replica"`
	// Place identifies the file system and the directory's position on it, so a copy of the
	// directory has another Place. It is empty if the file system does not provide this.
	Place string `json:"place,omitempty"`
	// Held means that the directory's state was HELD.
	Held bool `json:"held,omitempty"`
	// Templates are the templates seen in the directory, sorted. The replica treats any other
	// template as never having been there, for example in a copy of the directory.
	Templates []string `json:"templates,omitempty"`
	// Removed maps recently removed templates to the time of removal. Removals are counted
	// together.
	Removed map[string]time.Time `json:"removed,omitempty"`
	// Away is when the replica was first seen without a session, to about an hour. Zero means it
	// has one.
	Away time.Time `json:"away,omitzero"`
}

// MaxRemembered bounds each list of a DirectoryMemory. If a template beyond it is gone after a
// restart, its removal must be confirmed.
const MaxRemembered = 4000

// DirectorySync asks the replicas to read their template directories. The gateway writes it.
type DirectorySync struct {
	record.Rev
	// Asked and Confirmed are as in TemplateSource.
	Asked     int64  `json:"asked"`
	Confirmed string `json:"confirmed,omitempty"`
}
