package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Limits of one template version.
const (
	MaxEntries  = 50_000
	MaxTreeMiB  = 512
	MaxFileMiB  = 128
	maxPathLen  = 1024
	bytesPerMiB = 1 << 20
)

// Canonical sorts a manifest's entries, checks them and returns its JSON and
// digest. The same tree gives the same bytes.
func Canonical(m fleet.Manifest) (body []byte, digest string, err error) {
	slices.SortFunc(m.Entries, func(a, b fleet.ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	if err := check(m.Entries); err != nil {
		return nil, "", err
	}
	body, err = json.Marshal(m)
	if err != nil {
		return nil, "", errs.As(errs.Internal, "template.Canonical", err)
	}
	sum := sha256.Sum256(body)
	return body, hex.EncodeToString(sum[:]), nil
}

func check(entries []fleet.ManifestEntry) error {
	if len(entries) > MaxEntries {
		return errs.New(errs.TooLarge, "the template has %d entries, at most %d are allowed", len(entries), MaxEntries)
	}
	var total int64
	for i, e := range entries {
		if i > 0 && entries[i-1].Path == e.Path {
			return errs.New(errs.Invalid, "%q stands in the template twice", e.Path)
		}
		if err := checkEntry(e); err != nil {
			return err
		}
		total += e.Size
	}
	if total > MaxTreeMiB*bytesPerMiB {
		return errs.New(errs.TooLarge, "the template has %d MiB, at most %d MiB are allowed", total/bytesPerMiB, MaxTreeMiB)
	}
	return nil
}

func checkEntry(e fleet.ManifestEntry) error {
	if !SafePath(e.Path) {
		return errs.New(errs.Invalid, "%q is not a path inside the template", e.Path)
	}
	switch e.Kind {
	case fleet.FileRegular:
		if e.Size > MaxFileMiB*bytesPerMiB {
			return errs.New(errs.TooLarge, "%s has %d MiB, at most %d MiB are allowed for a file", e.Path, e.Size/bytesPerMiB, MaxFileMiB)
		}
	case fleet.FileDir:
	case fleet.FileSymlink:
		if !SafeLink(e.Path, e.Target) {
			return errs.New(errs.Invalid, "the link %s leads out of the template, to %q", e.Path, e.Target)
		}
	default:
		return errs.New(errs.Invalid, "%s is of unknown kind %q", e.Path, e.Kind)
	}
	return nil
}

// SafePath reports whether p is relative, clean, slash-separated and stays inside.
func SafePath(p string) bool {
	return p != "" && p != "." && len(p) <= maxPathLen && !strings.ContainsAny(p, "\x00\\") &&
		!path.IsAbs(p) && path.Clean(p) == p && p != ".." && !strings.HasPrefix(p, "../")
}

// SafeLink reports whether a link at p to target stays inside the tree.
func SafeLink(p, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsAny(target, "\x00\\") {
		return false
	}
	joined := path.Join(path.Dir(p), target)
	return joined == "." || SafePath(joined)
}
