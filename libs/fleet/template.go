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

// Hidden reports whether a template is no instance's business: lists leave it out, and no
// pattern means it. The name of such a group or template begins with _.
func (r TemplateRef) Hidden() bool {
	return strings.HasPrefix(r.Group, "_") || strings.HasPrefix(r.Name, "_")
}

// Internal reports whether a template is Orrery's own: it is in the group of AvatarTemplate.
// No route, no group and no source knows of it: who may change templates may not change
// what lies there.
func (r TemplateRef) Internal() bool { return r.Group == AvatarTemplate.Group }

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
	// Storage is the origin that the template must have: a source, or DirectoryOrigin. ""
	// accepts any.
	Storage string `json:"storage,omitempty"`
	// Priority decides between layers that bring the same file: the highest wins.
	Priority int `json:"priority,omitempty"`
}

// From reports whether a layer's storage accepts a template.
func (l TemplateLayer) From(h TemplateHead) bool { return l.Storage == "" || l.Storage == h.Origin }

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
	// Previous is the digest the head had before its latest move; "" for the first version.
	Previous string `json:"previous,omitempty"`
	// SourceDigest is the digest the template's source had when it was last published
	// from. It differs from Digest after a rollback or an edit.
	SourceDigest string `json:"sourceDigest,omitempty"`
	// SizeBytes is what the version's files hold, Files how many there are. 0 also when
	// it was published by a templatesvc that did not say.
	SizeBytes   int64  `json:"sizeBytes,omitempty"`
	Files       int    `json:"files,omitempty"`
	Description string `json:"description,omitempty"`
	// Platform is the software the template is for; "" for any.
	Platform string `json:"platform,omitempty"`
	// Origin is the source that the template is published from, DirectoryOrigin for the
	// directory of templates. "": it was made through the API.
	Origin string `json:"origin,omitempty"`
	// Directory is the TemplateDirectory.ID of the directory that published it last; ""
	// for other origins.
	Directory string `json:"directory,omitempty"`
	// Move is the number of the latest TemplateMove; 0 before there was one.
	Move int64 `json:"move,omitempty"`
	// Variables are the version's, for whoever composes plans.
	Variables []Variable `json:"variables,omitempty"`
	UpdatedAt time.Time  `json:"updatedAt"`
}

// DirectoryOrigin is the origin of what is published from the directory of templates.
const DirectoryOrigin = "directory"

// TemplateVersion is the record of one published version; written once by templatesvc.
type TemplateVersion struct {
	Rev
	TemplateRef
	Digest    string `json:"digest"`
	Parent    string `json:"parent,omitempty"` // digest of the version before, "" for the first
	Files     int    `json:"files"`
	SizeBytes int64  `json:"sizeBytes"`
	// Copies is on how many separate stores its content was when it was published; 0
	// when that was not counted.
	Copies    int       `json:"copies,omitempty"`
	Author    string    `json:"author,omitempty"`
	Message   string    `json:"message,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}
