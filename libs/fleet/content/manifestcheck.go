package content

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// Limits of every manifest.
const (
	MaxPathBytes     = 1024 // of a path or link target
	MaxNameBytes     = 255  // of one path segment, as in most file systems
	MaxDepth         = 64   // segments of a path
	MaxChunkBytes    = 8 << 20
	MaxManifestBytes = 64 << 20 // of a manifest's JSON
)

const bytesPerMiB = 1 << 20

// ManifestLimits bound the content of a template version.
type ManifestLimits struct {
	// Entries is the maximum number of files, links and empty directories.
	Entries int
	// TreeBytes bounds the total size of all files, FileBytes the size of each.
	TreeBytes, FileBytes int64
}

// VersionLimits returns the limits of every version: 50,000 entries, 64 GiB in total, 16 GiB per
// file. Uploads have additional limits.
func VersionLimits() ManifestLimits {
	return ManifestLimits{Entries: 50_000, TreeBytes: 64 << 30, FileBytes: 16 << 30}
}

// Canonical sorts the entries, checks the manifest and returns its JSON and the JSON's digest. The
// same tree always gives the same bytes. The error is Invalid if the tree is not acceptable and
// TooLarge if it exceeds a limit.
func (m Manifest) Canonical(l ManifestLimits) (body []byte, digest string, err error) {
	m.Entries = slices.Clone(m.Entries)
	slices.SortFunc(m.Entries, func(a, b ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	if m.Entries == nil {
		m.Entries = []ManifestEntry{}
	}
	root, err := m.check(l)
	if err != nil {
		return nil, "", err
	}
	for name := range root.children {
		if reserved(name) {
			return nil, "", errs.New(errs.Invalid, "%s is reserved for the agent: rename the file", name)
		}
	}
	if err := root.checkCase(""); err != nil {
		return nil, "", err
	}
	if body, err = json.Marshal(m); err != nil {
		return nil, "", errs.WrapAs(errs.Internal, "fleet.Canonical", err)
	}
	if len(body) > MaxManifestBytes {
		return nil, "", errs.New(errs.TooLarge, "the template's list of files has %d MiB, at most %d MiB are allowed", len(body)/bytesPerMiB, MaxManifestBytes/bytesPerMiB)
	}
	return body, DigestOf(body), nil
}

// DecodeManifest decodes a stored manifest. It verifies the digest over the stored bytes, so
// fields unknown to this version do not matter. The error is Unavailable if the bytes do not match
// the digest, and Invalid or TooLarge if the tree is not acceptable. Names that differ only in
// case are accepted, because older versions may contain them.
func DecodeManifest(body []byte, digest string, l ManifestLimits) (Manifest, error) {
	var m Manifest
	if len(body) > MaxManifestBytes {
		return m, errs.New(errs.TooLarge, "manifest %s has more than %d MiB", digest, MaxManifestBytes/bytesPerMiB)
	}
	if got := DigestOf(body); got != digest {
		return m, errs.New(errs.Unavailable, "manifest %s is corrupt: its bytes have the digest %s", digest, got)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&m); err != nil {
		return Manifest{}, errs.New(errs.Invalid, "manifest %s cannot be decoded: %v", digest, err)
	}
	if _, err := m.check(l); err != nil {
		return Manifest{}, errs.Wrap("fleet.DecodeManifest", err)
	}
	return m, nil
}

// DigestOf returns the SHA-256 of b in hex, the name of blobs and manifests.
func DigestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// check checks all entries and returns them as a tree.
func (m Manifest) check(l ManifestLimits) (*treeNode, error) {
	if len(m.Entries) > l.Entries {
		return nil, errs.New(errs.TooLarge, "the template has %d entries, at most %d are allowed", len(m.Entries), l.Entries)
	}
	var total int64
	for i := range m.Entries {
		e := &m.Entries[i]
		if err := e.check(l); err != nil {
			return nil, err
		}
		if total += e.Size; total > l.TreeBytes || total < 0 {
			return nil, errs.New(errs.TooLarge, "the template is larger than the allowed %d MiB", l.TreeBytes/bytesPerMiB)
		}
	}
	root, err := newTree(m.Entries)
	if err != nil {
		return nil, err
	}
	return root, root.checkLinks(m.Entries)
}

func (e *ManifestEntry) check(l ManifestLimits) error {
	switch {
	case !SafePath(e.Path):
		return errs.New(errs.Invalid, "%q is not a valid path in a template: it must be relative and valid UTF-8, without control characters and backslashes, with names of at most %d bytes and at most %d levels", clipped(e.Path), MaxNameBytes, MaxDepth)
	case e.Mode&^0o777 != 0:
		return errs.New(errs.Invalid, "%s has the mode %o; only permission bits are allowed", e.Path, e.Mode)
	}
	switch e.Kind {
	case FileRegular:
		return e.checkContent(l)
	case FileDir, FileSymlink: // targets are checked over the whole tree
		if e.Size != 0 || e.SHA256 != "" || e.Chunks != nil {
			return errs.New(errs.Invalid, "%s is not a file but has content", e.Path)
		}
		return nil
	}
	return errs.New(errs.Invalid, "%s has the unknown kind %q", e.Path, e.Kind)
}

func (e *ManifestEntry) checkContent(l ManifestLimits) error {
	switch {
	case e.Size < 0 || !ValidDigest(e.SHA256):
		return errs.New(errs.Invalid, "%s has an invalid size or hash", e.Path)
	case e.Size > l.FileBytes:
		return errs.New(errs.TooLarge, "%s has %d MiB, at most %d MiB are allowed for a file", e.Path, e.Size/bytesPerMiB, l.FileBytes/bytesPerMiB)
	case e.Chunks == nil:
		return nil
	}
	var sum int64
	for _, c := range e.Chunks {
		if c.Size <= 0 || c.Size > MaxChunkBytes || !ValidDigest(c.SHA256) {
			return errs.New(errs.Invalid, "%s has a chunk with an invalid size or hash", e.Path)
		}
		sum += c.Size
	}
	if sum != e.Size {
		return errs.New(errs.Invalid, "the chunks of %s have %d bytes in total, but the file has %d", e.Path, sum, e.Size)
	}
	return nil
}

// ValidDigest reports whether s is a SHA-256 in 64 lower-case hex digits.
func ValidDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

func clipped(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// Content returns the content of a file's entry.
func (e *ManifestEntry) Content() Content {
	return Content{Size: e.Size, SHA256: e.SHA256, Chunks: e.Chunks}
}

// Blobs returns the blobs in which the content is stored.
func (c Content) Blobs() []Chunk {
	if c.Chunks == nil {
		return []Chunk{{SHA256: c.SHA256, Size: c.Size}}
	}
	return c.Chunks
}

// Blobs yields the blobs of all files in the order of the entries. The same blob may occur more
// than once.
func (m Manifest) Blobs() iter.Seq[Chunk] {
	return func(yield func(Chunk) bool) {
		for i := range m.Entries {
			if m.Entries[i].Kind != FileRegular {
				continue
			}
			for _, c := range m.Entries[i].Content().Blobs() {
				if !yield(c) {
					return
				}
			}
		}
	}
}
