package fleet

import (
	"strings"
	"time"
)

// TemplateRef names a template: "<group>/<name>".
type TemplateRef struct {
	Group string `json:"group"`
	Name  string `json:"name"`
}

// String is "<group>/<name>".
func (r TemplateRef) String() string { return r.Group + "/" + r.Name }

// DefaultTemplateGroup is the group of a template named without one.
const DefaultTemplateGroup = "default"

// ParseTemplateRef reads "<group>/<name>", or "<name>" in DefaultTemplateGroup.
func ParseTemplateRef(s string) TemplateRef {
	if g, n, ok := strings.Cut(s, "/"); ok {
		return TemplateRef{g, n}
	}
	return TemplateRef{DefaultTemplateGroup, s}
}

// Short is the name alone for templates of DefaultTemplateGroup, else String.
func (r TemplateRef) Short() string {
	if r.Group == DefaultTemplateGroup {
		return r.Name
	}
	return r.String()
}

// Valid reports whether both parts are usable as a path segment and a key segment.
func (r TemplateRef) Valid() bool { return validSegment(r.Group) && validSegment(r.Name) }

func validSegment(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '.' {
		return false
	}
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}

// TemplateLayer is a template chosen by a selector, with its priority and origin.
type TemplateLayer struct {
	TemplateRef
	// Storage is where the operator says the template lives; "local" when empty.
	Storage string `json:"storage,omitempty"`
	// Priority decides between layers that bring the same file: the highest wins.
	Priority int `json:"priority,omitempty"`
}

// TemplateSelection chooses the layers of an instance.
type TemplateSelection struct {
	// AllOf lists templates that are all used.
	AllOf []TemplateLayer `json:"allOf,omitempty"`
	// AllInGroups lists template groups of which every template is used, with priority 0.
	AllInGroups []string `json:"allInGroups,omitempty"`
	// OneOf lists templates of which one is used, chosen anew for every instance.
	OneOf []TemplateLayer `json:"oneOf,omitempty"`
	// OneInGroups lists template groups of each of which one template is used.
	OneInGroups []string `json:"oneInGroups,omitempty"`
	// Override is Universe's onTemplatePasteOverridePresentFiles. With it, later
	// layers overwrite; without it, files present in the directory (of a static
	// instance) are kept. Between layers the highest priority wins either way.
	Override bool `json:"override,omitempty"`
}

// TemplateHead is the current version of a template; moved by compare-and-swap by templatesvc.
type TemplateHead struct {
	Rev
	TemplateRef
	// Digest is the version's identity: SHA-256 of its manifest, hex.
	Digest string `json:"digest"`
	// Previous is the digest the head had before it was last published; "" for the
	// first version and after a rollback, when the version's Parent tells.
	Previous string `json:"previous,omitempty"`
	// SourceDigest is the digest the source directory had when it was last published
	// from. It differs from Digest after a rollback.
	SourceDigest string `json:"sourceDigest,omitempty"`
	// SizeBytes is what the version's files hold. 0 also when it was published by a
	// templatesvc that did not say.
	SizeBytes   int64     `json:"sizeBytes,omitempty"`
	Description string    `json:"description,omitempty"`
	UpdatedAt   time.Time `json:"updatedAt"`
}

// TemplateVersion is the record of one published version; written once by templatesvc.
type TemplateVersion struct {
	Rev
	TemplateRef
	Digest    string    `json:"digest"`
	Parent    string    `json:"parent,omitempty"` // digest of the version before, "" for the first
	Files     int       `json:"files"`
	SizeBytes int64     `json:"sizeBytes"`
	Author    string    `json:"author,omitempty"`
	Message   string    `json:"message,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// FileKind is what a manifest entry is.
type FileKind string

// The kinds of manifest entries.
const (
	FileRegular FileKind = ""
	FileDir     FileKind = "dir" // an empty directory; others follow from their files
	FileSymlink FileKind = "link"
)

// ManifestEntry is one file of a template version.
type ManifestEntry struct {
	// Path is slash-separated, relative, clean and without "..".
	Path string   `json:"path"`
	Kind FileKind `json:"kind,omitempty"`
	Mode uint32   `json:"mode"` // permission bits
	Size int64    `json:"size,omitempty"`
	// SHA256 is the content's hash, hex; empty for directories and links.
	SHA256 string `json:"sha256,omitempty"`
	// Target is a link's target, inside the tree.
	Target string `json:"target,omitempty"`
}

// Manifest is a template version's content: entries in order of path.
type Manifest struct {
	Entries []ManifestEntry `json:"entries"`
}
