// Package content holds what instances are built from: template manifests and versions,
// their sources, variables, secret references, and the catalog of server software.
package content

// FileKind is the type of a manifest entry.
type FileKind string

// The kinds of manifest entries.
const (
	FileRegular FileKind = ""
	FileDir     FileKind = "dir" // an empty directory; other directories follow from their files
	FileSymlink FileKind = "link"
)

// Chunk is a piece of a large file, stored as a separate blob.
type Chunk struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"` // in bytes
}

// Content describes the bytes of a file: one blob, or a list of chunks.
type Content struct {
	Size int64 `json:"size"` // in bytes
	// SHA256 is the hash of the whole file, in hex.
	SHA256 string `json:"sha256"`
	// Chunks are the pieces in order. If nil, the file is one blob named by SHA256.
	Chunks []Chunk `json:"chunks,omitempty"`
}

// ManifestEntry is one file of a template version.
type ManifestEntry struct {
	// Path is slash-separated, relative, clean and without "..".
	Path string   `json:"path"`
	Kind FileKind `json:"kind,omitempty"`
	Mode uint32   `json:"mode"` // permission bits
	Size int64    `json:"size,omitempty"`
	// SHA256 is the hash of the content, in hex. It is empty for directories and links.
	SHA256 string `json:"sha256,omitempty"`
	// Target is the target of a link. It stays inside the tree.
	Target string `json:"target,omitempty"`
	// Chunks are the pieces of a large file in order. If nil, the file is one blob named by
	// SHA256.
	Chunks []Chunk `json:"chunks,omitempty"`
}

// Manifest is the content of a template version, with entries sorted by path. Its digest is the
// hash of its published JSON. For that reason fields may only be added, and empty ones are
// omitted.
type Manifest struct {
	Entries []ManifestEntry `json:"entries"`
	// Variables are the definitions of the template's placeholders.
	Variables []Variable `json:"variables,omitempty"`
}
