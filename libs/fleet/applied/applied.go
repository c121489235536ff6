// Package applied has the documents that declarative clients applied last. A client makes a
// three-way merge of such a document, the object and a new document.
package applied

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// MaxDocument bounds a document, in bytes of JSON.
const MaxDocument = 64 << 10

// Kind is the kind of the object that a document declares, as the audit names it.
type Kind string

// The kinds.
const (
	Group          Kind = "group"
	Network        Kind = "network"
	Schedule       Kind = "schedule"
	Overlay        Kind = "overlay"
	Quota          Kind = "quota"
	Notice         Kind = "notice"
	Role           Kind = "role"
	Binding        Kind = "binding"
	TemplateSource Kind = "template-source"
	// Catalog is a platform with its versions.
	Catalog Kind = "catalog"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Group, Network, Schedule, Overlay, Quota, Notice, Role, Binding, TemplateSource, Catalog}
}

// Known reports whether k is one of the kinds.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }

// Record is the document that was applied last for one object. The gateway writes it.
type Record struct {
	Mark
	// Document is a JSON object without secret values.
	Document json.RawMessage `json:"document"`
}

// Mark is a Record without its document, as views hold it.
type Mark struct {
	record.Rev
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// By is the user who applied the document, At when it last changed.
	By string    `json:"by"`
	At time.Time `json:"at"`
}
