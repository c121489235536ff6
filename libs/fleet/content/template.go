package content

import (
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
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

// Short returns only the name for templates of DefaultTemplateGroup, otherwise String.
func (r TemplateRef) Short() string {
	if r.Group == DefaultTemplateGroup {
		return r.Name
	}
	return r.String()
}

// Hidden reports whether a template is not meant for instances because its group or name begins
// with _. Lists omit such templates, and patterns do not match them.
func (r TemplateRef) Hidden() bool {
	return strings.HasPrefix(r.Group, "_") || strings.HasPrefix(r.Name, "_")
}

// Internal reports whether a template is reserved by Orrery, i.e. in the group of AvatarTemplate.
// No route, group or source may use it, so users who may change templates cannot change its
// content.
func (r TemplateRef) Internal() bool { return r.Group == AvatarTemplate.Group }

// Valid reports whether both parts are usable as path and key segments.
func (r TemplateRef) Valid() bool {
	return validate.ValidSegment(r.Group) && validate.ValidSegment(r.Name)
}

// TemplateLayer is a selected template with its priority and origin.
type TemplateLayer struct {
	TemplateRef
	// Storage is the origin the template must have: a source or DirectoryOrigin. Empty accepts
	// any.
	Storage string `json:"storage,omitempty"`
	// Priority decides between layers with the same file: the highest wins.
	Priority int `json:"priority,omitempty"`
}

// From reports whether the layer's storage accepts the template.
func (l TemplateLayer) From(h TemplateHead) bool { return l.Storage == "" || l.Storage == h.Origin }

// TemplateSelection selects the layers of an instance.
type TemplateSelection struct {
	// AllOf lists templates that are always used.
	AllOf []TemplateLayer `json:"allOf,omitempty"`
	// AllInGroups lists template groups. Every template of them is used, with priority 0.
	AllInGroups []string `json:"allInGroups,omitempty"`
	// OneOf lists templates. Every instance gets one of them, selected at random.
	OneOf []TemplateLayer `json:"oneOf,omitempty"`
	// OneInGroups lists template groups. Every instance gets one template of each, selected at
	// random.
	OneInGroups []string `json:"oneInGroups,omitempty"`
	// Override is Universe's onTemplatePasteOverridePresentFiles. If it is false, files already in
	// the directory of a static instance are kept. Between layers the highest priority always
	// wins.
	Override bool `json:"override,omitempty"`
}

// TemplateHead points to the current version of a template. templatesvc moves it with
// compare-and-swap.
type TemplateHead struct {
	record.Rev
	TemplateRef
	// Digest identifies the version: the SHA-256 of its manifest, in hex.
	Digest string `json:"digest"`
	// Previous is the digest before the latest move, "" for the first version.
	Previous string `json:"previous,omitempty"`
	// SourceDigest is the digest of the version last published from the template's source. It
	// differs from Digest after a rollback or an edit.
	SourceDigest string `json:"sourceDigest,omitempty"`
	// SizeBytes is the total size of the version's files, Files their number. Both are 0 for heads
	// published by old templatesvc versions.
	SizeBytes   int64  `json:"sizeBytes,omitempty"`
	Files       int    `json:"files,omitempty"`
	Description string `json:"description,omitempty"`
	// Platform is the software the template is for. Empty means any.
	Platform string `json:"platform,omitempty"`
	// Origin is the source that publishes the template, or DirectoryOrigin. Empty means it was
	// created through the API.
	Origin string `json:"origin,omitempty"`
	// Directory is the TemplateDirectory.ID of the directory that last published it. It is empty
	// for other origins.
	Directory string `json:"directory,omitempty"`
	// Move is the number of the latest TemplateMove, 0 before the first.
	Move int64 `json:"move,omitempty"`
	// Variables are the version's variables, needed to compose plans.
	Variables []Variable `json:"variables,omitempty"`
	UpdatedAt time.Time  `json:"updatedAt"`
}

// DirectoryOrigin is the origin of templates from the template directory.
const DirectoryOrigin = "directory"

// TemplateVersion is the record of one published version. templatesvc writes it once.
type TemplateVersion struct {
	record.Rev
	TemplateRef
	Digest    string `json:"digest"`
	Parent    string `json:"parent,omitempty"` // digest of the previous version, "" for the first
	Files     int    `json:"files"`
	SizeBytes int64  `json:"sizeBytes"`
	// Copies is the number of separate stores that had the content when it was published, 0 if
	// unknown.
	Copies    int       `json:"copies,omitempty"`
	Author    string    `json:"author,omitempty"`
	Message   string    `json:"message,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// AvatarTemplate is the template that holds the pictures of all users.
var AvatarTemplate = TemplateRef{Group: "_users", Name: "avatars"}

// CheckDescription returns an Invalid error for the field description or platform of a template.
func CheckDescription(description, platform string) error {
	var p validate.Problems
	p.Lines("description", description, validate.MaxDescription)
	p.Word("platform", platform, validate.MaxPlatform)
	if len(p.List) == 0 {
		return nil
	}
	return p.List[0]
}
