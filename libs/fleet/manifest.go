package fleet

// FileKind is what a manifest entry is.
type FileKind string

// The kinds of manifest entries.
const (
	FileRegular FileKind = ""
	FileDir     FileKind = "dir" // an empty directory; others follow from their files
	FileSymlink FileKind = "link"
)

// Chunk is a piece of a large file: a blob of its own.
type Chunk struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"` // in bytes
}

// Content is what a file holds: one blob, or the chunks it is joined from.
type Content struct {
	Size int64 `json:"size"` // in bytes
	// SHA256 is the hash of the whole, hex.
	SHA256 string `json:"sha256"`
	// Chunks are its pieces in order; nil: it is one blob, named by SHA256.
	Chunks []Chunk `json:"chunks,omitempty"`
}

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
	// Chunks are a large file's pieces in order; nil: it is one blob, named by SHA256.
	Chunks []Chunk `json:"chunks,omitempty"`
}

// Manifest is a template version's content: entries in order of path. Its digest is the
// hash of its bytes as they were published; fields are only ever added, and left out when empty.
type Manifest struct {
	Entries []ManifestEntry `json:"entries"`
	// Variables are the definitions of its placeholders.
	Variables []Variable `json:"variables,omitempty"`
}
