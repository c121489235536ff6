package fleet

import "time"

// TemplateDirectory is how the directory of templates of one replica of templatesvc
// stands; written by that replica, and removed by another when it has no session.
type TemplateDirectory struct {
	Rev
	Replica string `json:"replica"`
	// ID is the directory's own, which it keeps wherever it is mounted; "" for one that
	// is empty.
	ID      string      `json:"id,omitempty"`
	State   SourceState `json:"state"`
	Message string      `json:"message,omitempty"`
	// Held as in SourceStatus.
	Held string    `json:"held,omitempty"`
	At   time.Time `json:"at"`
}

// DirectorySync has the directories of templates looked at; written by the gateway.
type DirectorySync struct {
	Rev
	// Asked and Confirmed as in TemplateSource.
	Asked     int64  `json:"asked"`
	Confirmed string `json:"confirmed,omitempty"`
}
