package content_test

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

var limits = content.VersionLimits()

// sumOf returns a fake hash of repeated digits.
func sumOf(digit string) string { return strings.Repeat(digit, 64) }

func file(p, digit string) content.ManifestEntry {
	return content.ManifestEntry{Path: p, Mode: 0o644, Size: 1, SHA256: sumOf(digit)}
}

func link(p, target string) content.ManifestEntry {
	return content.ManifestEntry{Path: p, Kind: content.FileSymlink, Target: target}
}

func emptyDir(p string) content.ManifestEntry {
	return content.ManifestEntry{Path: p, Kind: content.FileDir, Mode: 0o755}
}

func tree(entries ...content.ManifestEntry) content.Manifest {
	return content.Manifest{Entries: entries}
}

func TestDigestIgnoresEntryOrder(t *testing.T) {
	one, first, err1 := tree(file("a", "1"), file("b", "2")).Canonical(limits)
	two, second, err2 := tree(file("b", "2"), file("a", "1")).Canonical(limits)
	if err1 != nil || err2 != nil || first != second || string(one) != string(two) {
		t.Fatalf("%s %v, %s %v", first, err1, second, err2)
	}
	// Manifests from before chunks and variables keep their digest.
	const golden = "b1575c80362ec5c3617a364a339656575e7e9f3229b35379859270165205e34c"
	if first != golden {
		t.Errorf("the digest changed to %s: old versions would be published anew", first)
	}
}

func TestCanonicalRejectsUnsafeTrees(t *testing.T) {
	chunked := func(chunks ...content.Chunk) content.ManifestEntry {
		return content.ManifestEntry{Path: "big", Mode: 0o644, Size: 3, SHA256: sumOf("1"), Chunks: chunks}
	}
	for name, c := range map[string]struct {
		m    content.Manifest
		says string
	}{
		"a path that stands twice":         {tree(file("a", "1"), file("a", "2")), "twice"},
		"a file that is a directory":       {tree(file("a", "1"), file("a/b", "2")), "a/b is below a"},
		"an entry below a link":            {tree(link("l", "."), file("l/x", "1")), "l/x is below l"},
		"a deep entry below a link":        {tree(link("l", "."), file("l/x/y", "1")), "is below l"},
		"names that differ in case":        {tree(file("d/Read.me", "1"), file("d/read.ME", "2")), "differ only in case"},
		"directories that differ in case":  {tree(file("D/a", "1"), file("d/b", "2")), "differ only in case"},
		"case beyond ASCII":                {tree(file("straße/Ä", "1"), file("straße/ä", "2")), "differ only in case"},
		"an invalid UTF-8 name":            {tree(file("a\xff", "1")), "UTF-8"},
		"a control character":              {tree(file("a\x1b[2J", "1")), "control"},
		"a path that leads out":            {tree(file("../a", "1")), "../a"},
		"an absolute path":                 {tree(file("/a", "1")), "/a"},
		"a backslash":                      {tree(file(`a\..\b`, "1")), "backslash"},
		"a name of 256 bytes":              {tree(file(strings.Repeat("n", 256), "1")), "255"},
		"65 levels":                        {tree(file(strings.Repeat("d/", 64)+"f", "1")), "64 levels"},
		"the agent's own lock":             {tree(file(".orrery-lock", "1")), "reserved for the agent"},
		"the agent's own directory":        {tree(file(".orrery/report.json", "1")), "reserved for the agent"},
		"bits that are no permissions":     {tree(content.ManifestEntry{Path: "a", Mode: 0o4755, Size: 1, SHA256: sumOf("1")}), "mode"},
		"a file without a hash":            {tree(content.ManifestEntry{Path: "a", Mode: 0o644}), "hash"},
		"a negative size":                  {tree(content.ManifestEntry{Path: "a", Size: -1, SHA256: sumOf("1")}), "size"},
		"a directory with content":         {tree(content.ManifestEntry{Path: "a", Kind: content.FileDir, SHA256: sumOf("1")}), "has content"},
		"an unknown kind":                  {tree(content.ManifestEntry{Path: "a", Kind: "fifo"}), "unknown kind"},
		"chunks that do not make the file": {tree(chunked(content.Chunk{SHA256: sumOf("1"), Size: 2})), "chunks of big"},
		"a chunk without a size":           {tree(chunked(content.Chunk{SHA256: sumOf("1")})), "chunk"},
		"a chunk that is no hash":          {tree(chunked(content.Chunk{SHA256: "../x", Size: 3})), "chunk"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := c.m.Canonical(limits); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want it to say %q", err, c.says)
			}
		})
	}
}

func TestCanonicalRejectsTooLargeTrees(t *testing.T) {
	m := tree(file("a", "1"), file("b", "1"))
	for name, l := range map[string]content.ManifestLimits{
		"entries": {Entries: 1, TreeBytes: 10, FileBytes: 10},
		"tree":    {Entries: 10, TreeBytes: 1, FileBytes: 10},
		"file":    {Entries: 10, TreeBytes: 10, FileBytes: 0},
	} {
		if _, _, err := m.Canonical(l); !errs.Is(err, errs.TooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinksResolveLikeTheKernel(t *testing.T) {
	for name, c := range map[string]struct {
		m  content.Manifest
		ok bool
	}{
		"to a neighbour":               {tree(file("d/a", "1"), link("d/l", "a")), true},
		"to the root":                  {tree(link("d/l", "..")), true},
		"to nothing":                   {tree(link("d/l", "missing/../../x")), true},
		"out at once":                  {tree(link("l", "..")), false},
		"out below a directory":        {tree(link("d/l", "../../x")), false},
		"absolute":                     {tree(link("l", "/etc/passwd")), false},
		"nowhere":                      {tree(link("l", "")), false},
		"out through another link":     {tree(link("p/q/up", "../.."), link("p/q/evil", "up/../x")), false},
		"out through a chain":          {tree(link("a/b/c/l1", "../.."), link("a/l2", "b/c/l1/.."), link("a/l3", "l2/..")), false},
		"in through another link":      {tree(link("p/q/up", "../.."), link("p/q/fine", "up/x")), true},
		"text leads out, way does not": {tree(link("in", "a/b/c"), file("a/b/c/f", "1"), link("l", "in/../../a")), true},
		"in a circle":                  {tree(link("a", "b"), link("b", "a")), false},
		"to itself":                    {tree(link("a", "a/x")), false},
		"a target that is not UTF-8":   {tree(link("a", "\xff")), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.m.CheckLinks(); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLinkChainsTakeBoundedWork(t *testing.T) {
	var m content.Manifest
	last := "."
	for n := range 12 { // each leads through the previous one twelve times
		name := "l" + string(rune('a'+n))
		m.Entries = append(m.Entries, link(name, strings.Repeat(last+"/", 12)))
		last = name
	}
	if err := m.CheckLinks(); err == nil {
		t.Error("an exponential walk was taken")
	}
}

func TestDecodeManifestVerifiesBytes(t *testing.T) {
	body, _, err := tree(file("a", "1")).Canonical(limits)
	if err != nil {
		t.Fatal(err)
	}
	newer := []byte(strings.Replace(string(body), `{"entries"`, `{"later":1,"entries"`, 1))
	m, err := content.DecodeManifest(newer, content.DigestOf(newer), limits)
	if err != nil || len(m.Entries) != 1 {
		t.Errorf("a field of a newer build: %+v, %v", m, err)
	}
	if _, err := content.DecodeManifest(newer, content.DigestOf(body), limits); !errs.Is(err, errs.Unavailable) {
		t.Errorf("foreign bytes: %v", err)
	}
	old, err := json.Marshal(tree(file("README", "1"), file("readme", "2")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := content.DecodeManifest(old, content.DigestOf(old), limits); err != nil {
		t.Errorf("an old version with names that differ in case cannot be placed any more: %v", err)
	}
}

func TestBlobsAreChunksOrWholeFile(t *testing.T) {
	chunk := content.Chunk{SHA256: sumOf("3"), Size: 7}
	m := tree(file("a", "1"), emptyDir("d"), link("l", "a"), content.ManifestEntry{Path: "z", Size: 14, SHA256: sumOf("2"), Chunks: []content.Chunk{chunk, chunk}})
	got := slices.Collect(m.Blobs())
	if want := []content.Chunk{{SHA256: sumOf("1"), Size: 1}, chunk, chunk}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzPaths(f *testing.F) {
	for _, s := range []string{"a/b", "../a", "/a", "a/../..", "./a", "a\xff", "a\u0085"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if !content.SafePath(p) {
			return
		}
		if !strings.HasPrefix(path.Join("/tree", p), "/tree/") {
			t.Errorf("%q leaves the root", p)
		}
		var back string
		if b, err := json.Marshal(p); err != nil || json.Unmarshal(b, &back) != nil || back != p {
			t.Errorf("%q becomes %q on its way through JSON", p, back)
		}
	})
}

func FuzzManifest(f *testing.F) {
	for _, m := range []content.Manifest{tree(), tree(file("a", "1"), link("b", "a"), emptyDir("c")), tree(link("p/q/up", "../.."), link("p/q/evil", "up/../x"))} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := content.DecodeManifest(body, content.DigestOf(body), limits)
		if err != nil {
			return
		}
		again, digest, err := m.Canonical(limits)
		if err != nil {
			return // names that differ in case, and names reserved by the agent
		}
		if _, err := content.DecodeManifest(again, digest, limits); err != nil {
			t.Errorf("what was published cannot be read: %v", err)
		}
		if d := content.Diff(m, m); d != nil {
			t.Errorf("a tree differs from itself: %v", d)
		}
	})
}
