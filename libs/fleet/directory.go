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
	Held string `json:"held,omitempty"`
	// Items are the templates that are not published as they are, or of which there is
	// something to tell, by name: the first MaxSourceTemplates of them.
	Items []SourceItem `json:"items,omitempty"`
	// Since is when the replica first told of a directory. At is when it last looked because
	// it was started or asked, or found something changed in what is told here.
	Since time.Time `json:"since,omitzero"`
	At    time.Time `json:"at"`
}

// DirectoryMemory is what a replica of templatesvc has to know of a directory of templates
// after it was started anew, also under another name. That replica writes it; when it has
// no session, another one that finds itself in the same place takes it over.
type DirectoryMemory struct {
	Rev
	// ID is TemplateDirectory.ID; "" says that nothing is known.
	ID      string `json:"id"`
	Replica string `json:"replica"`
	// Place is the file system and where on it the directory lies, which copies of it do not
	// share; "" where the file system does not tell.
	Place string `json:"place,omitempty"`
	// Held says that the directory stood as HELD when this was written.
	Held bool `json:"held,omitempty"`
	// Templates are those that were seen in it, in order. What is not among them was
	// never there as far as this replica knows: in a copy of the directory, say.
	Templates []string `json:"templates,omitempty"`
	// Removed are those that went with it lately, and when: removals count together.
	Removed map[string]time.Time `json:"removed,omitempty"`
	// Away is since when the replica is known to have no session, to the hour or so; zero
	// while it has one.
	Away time.Time `json:"away,omitzero"`
}

// MaxRemembered bounds each list of a DirectoryMemory. Whatever is beyond it waits to be
// confirmed when it is gone after a start.
const MaxRemembered = 4000

// DirectorySync has the directories of templates looked at; written by the gateway.
type DirectorySync struct {
	Rev
	// Asked and Confirmed as in TemplateSource.
	Asked     int64  `json:"asked"`
	Confirmed string `json:"confirmed,omitempty"`
}
