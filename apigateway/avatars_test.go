package apigateway

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// pictures are the first bytes of files of each image type, and of other files.
var pictures = map[string]string{
	"image/png": "\x89PNG\r\n\x1a\n", "image/jpeg": "\xff\xd8\xff\xe0", "image/gif": "GIF89a", "image/webp": "RIFF\x04\x00\x00\x00WEBPVP8 ",
}

// pictureForm returns a form with a file, and its content type.
func pictureForm(t testing.TB, field, content string) (body, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.WriteField("other", "x")
	part, err := w.CreateFormFile(field, "me.png")
	if err == nil {
		_, err = part.Write([]byte(content))
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

func (s *site) show(user, content string) *reply {
	s.t.Helper()
	body, kind := pictureForm(s.t, "avatar", content)
	return s.do("POST", "/api/v1/users/"+user+"/avatar", body, "Content-Type", kind)
}

func TestAvatarIsPublicOnEveryGateway(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	b := second(t, s.site)
	bob, stranger := s.user("bob", "VIEWER"), b.as("")
	urls := map[string]bool{}
	for kind, begins := range pictures {
		content := begins + strings.Repeat("x", 1000)
		url := bob.show("bob", content).want(200).field("avatarUrl").(string)
		if urls[url] {
			t.Errorf("two pictures are at %s", url)
		}
		urls[url] = true
		await.That(t, "the other gateway shows the "+kind, func() string {
			got := stranger.do("GET", url, nil)
			return await.Unless(got.status == 200 && got.raw == content && got.header.Get("Content-Type") == kind, "%d %v", got.status, got.header)
		})
		got := stranger.do("GET", "/api/v1/users/bob/avatar", nil).want(200)
		for name, want := range map[string]string{
			"Cache-Control": "public, max-age=3600", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
			}
		}
		if r := stranger.do("GET", url, nil, "If-None-Match", got.header.Get("ETag")).want(304); r.raw != "" || got.header.Get("ETag") == "" {
			t.Errorf("not modified: %q", r.raw)
		}
		s.do("GET", "/api/v1/users/bob", nil).want(200).is("avatarUrl", url)
	}
	s.keeps(1)
	s.do("GET", "/api/v1/templates", nil).want(200).is("total", 0)
	s.do("GET", "/api/v1/templates?all=true", nil).want(200).is("total", 0)

	bob.do("PATCH", "/api/v1/users/bob", `{"username":"robert"}`).want(200)
	s.as("").do("GET", "/api/v1/users/robert/avatar", nil).want(200)
	s.as("").do("GET", "/api/v1/users/bob/avatar", nil).want(404)
	s.do("DELETE", "/api/v1/users/robert", nil).want(204)
	s.as("").do("GET", "/api/v1/users/robert/avatar", nil).want(404)
	s.keeps(0)
}

func TestAvatarUploadsAreRateLimited(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	second(t, s.site) // each gateway has its own rate limit
	await.That(t, "the gateway knows of another", func() string {
		n := len(s.view.Snapshot().ServiceSessions(serviceName))
		return await.Unless(n == 2, "it knows of %d", n)
	})
	bob, ann := s.user("bob", "VIEWER"), s.user("ann", "VIEWER")
	for n := range 10 {
		bob.show("bob", pictures["image/png"]+strings.Repeat("x", n)).want(200)
	}
	before := s.revision()
	bob.show("bob", pictures["image/png"]+"y").want(429).is("error.code", "RATE_LIMITED").naming("in an hour")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused picture wrote something: %v", keys)
	}
	bob.do("DELETE", "/api/v1/users/bob/avatar", nil).want(204)
	ann.show("ann", pictures["image/png"]).want(200)
}

// keeps waits until the view has the deletions and checks the number of stored pictures.
func (s *shelf) keeps(want int) {
	s.t.Helper()
	await.That(s.t, fmt.Sprint(want, " pictures are kept"), func() string {
		h, ok := s.view.Snapshot().TemplateHeads.Get(content.AvatarTemplate.String())
		return await.Unless(ok && h.Files == want, "%+v", h)
	})
}

func TestInvalidAvatarIsRefused(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	bob := s.user("bob", "VIEWER")
	before := s.revision()
	for _, content := range []string{"", "<html><script>alert(1)</script>", "<svg xmlns='http://www.w3.org/2000/svg'/>", "BM....", "MZ"} {
		bob.show("bob", content).want(400).naming("avatar")
	}
	wrong, kind := pictureForm(t, "picture", pictures["image/png"])
	bob.do("POST", "/api/v1/users/bob/avatar", wrong, "Content-Type", kind).want(400).naming("avatar")
	bob.do("POST", "/api/v1/users/bob/avatar", pictures["image/png"], "Content-Type", "image/png").want(400).naming("avatar")
	bob.do("POST", "/api/v1/users/bob/avatar", wrong[:len(wrong)/2], "Content-Type", kind).want(400)
	bob.show("bob", pictures["image/png"]+strings.Repeat("x", account.MaxAvatar)).want(413)
	bob.show("admin", pictures["image/png"]).want(403)
	bob.do("DELETE", "/api/v1/users/admin/avatar", nil).want(403)
	s.show("nobody", pictures["image/png"]).want(404)
	s.as("").show("bob", pictures["image/png"]).want(401)
	s.as("").do("GET", "/api/v1/users/bob/avatar", nil).want(404)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	bob.show("bob", pictures["image/png"]).want(200)
	bob.do("DELETE", "/api/v1/users/bob/avatar", nil).want(204)
	bob.do("DELETE", "/api/v1/users/bob/avatar", nil).want(204)
	s.do("GET", "/api/v1/users/bob", nil).want(200).is("avatarUrl", nil)
	s.as("").do("GET", "/api/v1/users/bob/avatar", nil).want(404)
}
