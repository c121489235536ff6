package templates

import (
	"context"
	"io"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// maxContent is the size of the largest file shown as text, in bytes.
const maxContent = 1 << 20

// templateFile is a directory entry of a template.
type templateFile struct {
	Name        string `json:"name"`
	Path        string `json:"path"`
	IsDirectory bool   `json:"isDirectory"`
	Size        int64  `json:"size"`
	// Mode holds the permission bits in octal, such as 644.
	Mode   string `json:"mode"`
	SHA256 string `json:"sha256,omitempty"`
	// Link is the target of a symbolic link.
	Link string `json:"link,omitempty"`
}

func templateFileOf(e content.ManifestEntry) templateFile {
	return templateFile{
		Name: path.Base(e.Path), Path: e.Path, IsDirectory: e.Kind == content.FileDir, Size: e.Size,
		Mode: strconv.FormatUint(uint64(e.Mode), 8), SHA256: e.SHA256, Link: e.Target,
	}
}

// versionForm matches a digest or a prefix of one.
var versionForm = regexp.MustCompile(`^[0-9a-f]{16,128}$`)

// versionOf returns the template of the path and the digest of the requested version: ?version, the
// caller's draft with ?draft=true, or the current version. ok is false if it answered the request.
func (a *API) versionOf(c *gin.Context) (h *content.TemplateHead, digest string, ok bool) {
	h, ok = a.head(c)
	if !ok {
		return h, "", false
	}
	asked := strings.ToLower(c.Query("version"))
	switch {
	case c.Query("draft") == "true":
		digest, err := a.draftOf(c, h)
		if err != nil {
			server.Fail(c, err)
		}
		return h, digest, err == nil
	case asked == "" || asked == h.Digest:
		return h, h.Digest, true
	case !versionForm.MatchString(asked):
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "version", Message: "must be a version's hash, or its first 16 to 128 hexadecimal digits"})
		return h, "", false
	}
	digest, err := a.findVersion(c.Request.Context(), h.TemplateRef, asked)
	if err != nil {
		server.Fail(c, err)
	}
	return h, digest, err == nil
}

// findVersion returns the digest of the only version that begins with asked.
func (a *API) findVersion(ctx context.Context, ref content.TemplateRef, asked string) (digest string, err error) {
	var all []content.TemplateVersion
	err = txn.InTime(ctx, func(ctx context.Context) (err error) {
		all, _, err = store.List(ctx, a.cfg.Operations.Store, keys.TemplateVersions(ref))
		return err
	})
	if err != nil {
		return "", err
	}
	for _, v := range all {
		switch {
		case !strings.HasPrefix(v.Digest, asked):
		case digest != "":
			return "", &errs.Error{Kind: errs.Malformed, Field: "version", Message: "matches several versions: send more digits"}
		default:
			digest = v.Digest
		}
	}
	if digest == "" {
		return "", errs.New(errs.NotFound, "template %s has no version %s: list its versions", ref, asked)
	}
	return digest, nil
}

// listFiles lists a directory of a template as a bare array.
func (a *API) listFiles(c *gin.Context) {
	_, digest, ok := a.versionOf(c)
	if !ok {
		return
	}
	entries, err := a.cfg.Templates.Files(c.Request.Context(), digest, c.Query("path"), false)
	if err != nil {
		server.Fail(c, err)
		return
	}
	sendSome(c, entries, templateFileOf)
}

// fileContent answers with a text file. Its ETag is the hash of the file.
func (a *API) fileContent(c *gin.Context) {
	_, digest, ok := a.versionOf(c)
	if !ok {
		return
	}
	f, err := a.cfg.Templates.File(c.Request.Context(), digest, c.Query("path"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	defer f.Body.Close()
	if f.Size > maxContent {
		server.Fail(c, errs.New(errs.TooLarge, "the file has %d bytes, the limit for text is %d: download it", f.Size, maxContent))
		return
	}
	content, err := io.ReadAll(io.LimitReader(f.Body, maxContent+1))
	switch {
	case err != nil || int64(len(content)) != f.Size:
		server.Fail(c, &errs.Error{Kind: errs.Unavailable, Message: "the template service closed the connection: retry", Err: err})
	case !upstream.Text(content, true):
		server.Refuse(c, wire.Reply{
			Status: http.StatusUnsupportedMediaType, Code: "BINARY_FILE", Message: "the file is not text: download it",
		})
	default:
		server.PartETag(c, f.SHA256)
		c.JSON(http.StatusOK, gin.H{
			"path": c.Query("path"), "content": string(content), "size": f.Size, "sha256": f.SHA256, "version": digest,
		})
	}
}

func (a *API) downloadFile(c *gin.Context) {
	_, digest, ok := a.versionOf(c)
	if !ok {
		return
	}
	f, err := a.cfg.Templates.File(c.Request.Context(), digest, c.Query("path"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	if server.Same(c, f.SHA256) {
		_ = f.Body.Close() // nothing was read
		return
	}
	server.Send(c, server.Transfer{Type: "application/octet-stream", Name: path.Base(c.Query("path")), Size: f.Size, Body: f.Body})
}

const (
	// defaultMatches and maxMatches bound the results of a search.
	defaultMatches = 50
	maxMatches     = 200
)

// searchFiles searches the names and texts of a template's files for ?q, and answers with a bare
// array.
func (a *API) searchFiles(c *gin.Context) {
	most, ok := server.Number(c, "maxResults", defaultMatches)
	if !ok {
		return
	}
	_, digest, ok := a.versionOf(c)
	if !ok {
		return
	}
	found, err := a.cfg.Templates.Search(c.Request.Context(), digest, c.Query("q"), min(max(most, 1), maxMatches))
	if err != nil {
		server.Fail(c, err)
		return
	}
	warnPartial(c, found.Partial)
	if found.More && !found.Partial {
		c.Header("Warning", `299 orrery "there may be more matches: narrow the search or raise maxResults"`)
	}
	out := make([]templateMatch, 0, len(found.Matches))
	for _, m := range found.Matches {
		start, end := matchIn(m.Preview, c.Query("q"))
		out = append(out, templateMatch{Match: m, Content: m.Preview, MatchStart: start, MatchEnd: end})
	}
	c.JSON(http.StatusOK, out)
}

// templateMatch is a match of a search.
type templateMatch struct {
	client.Match
	// Content repeats Preview under PrexorCloud's name. MatchStart and MatchEnd bound the match in
	// it, in UTF-16 code units like JavaScript strings.
	Content    string `json:"content"`
	MatchStart int    `json:"matchStart"`
	MatchEnd   int    `json:"matchEnd"`
}

// matchIn bounds the first match of a text in a preview, in UTF-16 code units. It ignores the case
// of ASCII letters. Both bounds are 0 if the preview cuts the match off.
func matchIn(preview, text string) (start, end int) {
	lower := func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}
	at := strings.Index(strings.Map(lower, preview), strings.Map(lower, text))
	if at < 0 {
		return 0, 0
	}
	start = utf16Len(preview[:at])
	return start, start + utf16Len(preview[at:at+len(text)])
}

// utf16Len returns the length in UTF-16 code units.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// warnPartial adds a warning that only a part of the template was searched.
func warnPartial(c *gin.Context, partial bool) {
	if partial {
		c.Header("Warning", `299 orrery "only the first 256 MiB of the template's text were searched"`)
	}
}

// inherited is a template that is layered below another by naming convention.
type inherited struct {
	Name    string `json:"name"`
	Hash    string `json:"hash"`
	Present bool   `json:"present"`
	Exists  bool   `json:"exists"` // repeats Present under PrexorCloud's name
}

// inheritance answers with the automatic layers below a template and the template itself, in the
// order in which they are applied, as a bare array.
func (a *API) inheritance(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	names := []string{"base"}
	if h.Platform != "" {
		names = append(names, "base-"+strings.ToLower(h.Platform))
	}
	var out []inherited
	heads := a.cfg.Operations.Snapshot().TemplateHeads
	for _, name := range names {
		ref := content.TemplateRef{Group: content.DefaultTemplateGroup, Name: name}
		if ref == h.TemplateRef {
			continue
		}
		l := inherited{Name: ref.Short()}
		if under, there := heads.Get(ref.String()); there {
			l.Hash, l.Present, l.Exists = under.Digest, true, true
		}
		out = append(out, l)
	}
	c.JSON(http.StatusOK, append(out, inherited{Name: h.Short(), Hash: h.Digest, Present: true, Exists: true}))
}
