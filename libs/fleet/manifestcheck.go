package fleet

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

// Limits of every manifest, whoever made it.
const (
	MaxPathBytes     = 1024 // of a path or a link's target
	MaxNameBytes     = 255  // of one segment of a path, as file systems have it
	MaxDepth         = 64   // segments of a path
	MaxChunkBytes    = 8 << 20
	MaxManifestBytes = 64 << 20 // of a manifest's JSON
)

const bytesPerMiB = 1 << 20

// ManifestLimits bound what one version of a template may hold.
type ManifestLimits struct {
	// Entries is how many files, links and empty directories there may be.
	Entries int
	// TreeBytes bounds all files together, FileBytes each of them.
	TreeBytes, FileBytes int64
}

// VersionLimits are the limits of every version, however it was made: 50,000
// entries, 64 GiB, 16 GiB a file. What is uploaded in one piece has limits of its own.
func VersionLimits() ManifestLimits {
	return ManifestLimits{Entries: 50_000, TreeBytes: 64 << 30, FileBytes: 16 << 30}
}

// Canonical sorts a manifest's entries, checks it and returns its JSON with the
// digest of it. The same tree gives the same bytes. Invalid names what is wrong
// with the tree, TooLarge which limit it exceeds.
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
			return nil, "", errs.New(errs.Invalid, "%s is a name of the agent's own: no template may bring it", name)
		}
	}
	if err := root.checkCase(""); err != nil {
		return nil, "", err
	}
	if body, err = json.Marshal(m); err != nil {
		return nil, "", errs.As(errs.Internal, "fleet.Canonical", err)
	}
	if len(body) > MaxManifestBytes {
		return nil, "", errs.New(errs.TooLarge, "the template's list of files has %d MiB, at most %d MiB are allowed", len(body)/bytesPerMiB, MaxManifestBytes/bytesPerMiB)
	}
	return body, DigestOf(body), nil
}

// DecodeManifest reads a stored manifest. The digest is proved over the bytes as
// they are, so that a field this build does not know changes nothing. Unavailable
// when the bytes are not those of the digest, Invalid or TooLarge when the tree
// must not be placed. Names that differ only in case are let through: older
// versions may have them.
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
		return Manifest{}, errs.New(errs.Invalid, "manifest %s cannot be read: %v", digest, err)
	}
	if _, err := m.check(l); err != nil {
		return Manifest{}, errs.Wrap("fleet.DecodeManifest", err)
	}
	return m, nil
}

// DigestOf is the SHA-256 of b in hex, as digests and blobs are named.
func DigestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// check refuses what must not be placed, and arranges the rest.
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
			return nil, errs.New(errs.TooLarge, "the template has more than %d MiB, which are allowed", l.TreeBytes/bytesPerMiB)
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
		return errs.New(errs.Invalid, "%q is not a usable path inside a template: relative, valid UTF-8, no control characters or backslashes, names of at most %d bytes, %d levels", clipped(e.Path), MaxNameBytes, MaxDepth)
	case e.Mode&^0o777 != 0:
		return errs.New(errs.Invalid, "%s has the mode %o, only permission bits are allowed", e.Path, e.Mode)
	}
	switch e.Kind {
	case FileRegular:
		return e.checkContent(l)
	case FileDir, FileSymlink: // targets are checked over the whole tree
		if e.Size != 0 || e.SHA256 != "" || e.Chunks != nil {
			return errs.New(errs.Invalid, "%s is no file, yet has content", e.Path)
		}
		return nil
	}
	return errs.New(errs.Invalid, "%s is of unknown kind %q", e.Path, e.Kind)
}

func (e *ManifestEntry) checkContent(l ManifestLimits) error {
	switch {
	case e.Size < 0 || !ValidDigest(e.SHA256):
		return errs.New(errs.Invalid, "%s has no valid size and hash", e.Path)
	case e.Size > l.FileBytes:
		return errs.New(errs.TooLarge, "%s has %d MiB, at most %d MiB are allowed for a file", e.Path, e.Size/bytesPerMiB, l.FileBytes/bytesPerMiB)
	case e.Chunks == nil:
		return nil
	}
	var sum int64
	for _, c := range e.Chunks {
		if c.Size <= 0 || c.Size > MaxChunkBytes || !ValidDigest(c.SHA256) {
			return errs.New(errs.Invalid, "%s has a chunk without valid size and hash", e.Path)
		}
		sum += c.Size
	}
	if sum != e.Size {
		return errs.New(errs.Invalid, "the chunks of %s have %d bytes, the file has %d", e.Path, sum, e.Size)
	}
	return nil
}

// ValidDigest reports whether s has the form of a SHA-256: 64 lower-case hex digits.
func ValidDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

func clipped(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// Content is what a file's entry says of its bytes.
func (e *ManifestEntry) Content() Content {
	return Content{Size: e.Size, SHA256: e.SHA256, Chunks: e.Chunks}
}

// Blobs are the blobs the content is stored in: its chunks, or itself as one.
func (c Content) Blobs() []Chunk {
	if c.Chunks == nil {
		return []Chunk{{SHA256: c.SHA256, Size: c.Size}}
	}
	return c.Chunks
}

// Blobs are the blobs of all files with their sizes, in order of the entries; the
// same blob may come more than once.
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
