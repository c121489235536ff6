package apigateway

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// text returns a template file as v1 shows it.
func (s *site) text(name, path string) string {
	s.t.Helper()
	text, _ := s.do("GET", "/api/v1/templates/"+name+"/files/content?path="+path, nil).want(200).field("content").(string)
	return text
}

// form returns a multipart body and its media type as a header.
func form(t *testing.T, fields map[string]string, files ...string) (body string, header []string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i+1 < len(files); i += 2 {
		part, err := w.CreateFormFile("file", files[i])
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, files[i+1])
	}
	for k, v := range fields {
		_ = w.WriteField(k, v)
	}
	_ = w.Close()
	return b.String(), []string{"Content-Type", w.FormDataContentType()}
}

func TestATemplateIsMadeEditedAndDeletedThroughV1(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	r := s.do("POST", "/api/v1/templates", `{"name":"lobby","description":"first","platform":"PAPER"}`).want(201)
	r.is("name", "lobby").is("description", "first").is("platform", "PAPER").is("files", 0).is("origin", "")
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(409)
	s.do("POST", "/api/v1/templates", `{"name":"../x"}`).want(422).naming("name")
	s.do("POST", "/api/v1/templates", `{}`).want(422).naming("name")

	saved := s.do("PUT", one+"/files/content?path=conf/a.yml", `{"content":"a: ü\n"}`).want(200).is("status", "saved").is("path", "conf/a.yml")
	s.do("GET", one, nil).want(200).is("hash", saved.field("hash")).is("files", 1).is("description", "first").is("sizeBytes", 6)
	if got := s.do("GET", one+"/files/content?path=conf/a.yml", nil).want(200); got.header.Get("ETag") != saved.header.Get("ETag") || got.field("content") != "a: ü\n" {
		t.Errorf("read %s, ETag %s, written %s", got.raw, got.header.Get("ETag"), saved.header.Get("ETag"))
	}
	s.do("POST", one+"/files/mkdir", `{"path":"world"}`).want(200).is("path", "world")
	s.do("POST", one+"/files/mkdir?path=world", nil).want(409)
	s.do("POST", one+"/files/rename", `{"from":"conf/a.yml","to":"b.yml"}`).want(200)
	s.do("POST", one+"/files/rename", `{"from":"conf/a.yml","to":"c.yml"}`).want(404)
	s.do("POST", one+"/files/rename", `{"from":"b.yml","to":"world"}`).want(409)
	s.do("DELETE", one+"/files?path=world", nil).want(204)
	s.do("DELETE", one+"/files?path=world", nil).want(404)
	if got := s.text("lobby", "b.yml"); got != "a: ü\n" {
		t.Error(got)
	}

	r = s.do("GET", one, nil).want(200)
	s.do("PATCH", one, `{"description":"second"}`, "If-Match", `"1"`).want(412).naming("admin changed it at 20")
	s.do("PATCH", one, `{"description":"second"}`, "If-Match", r.header.Get("ETag")).want(200).is("description", "second").is("platform", "PAPER")
	s.do("PATCH", one, `{"hash":"x"}`).want(400).naming("hash")
	s.do("PATCH", "/api/v1/templates/none", `{}`).want(404)

	s.group("g", map[string]any{"templates": []string{"lobby"}})
	s.do("DELETE", one, nil).want(409).naming("g")
	s.do("DELETE", "/api/v1/groups/g", nil).want(204)
	await.That(t, "the group is gone, or only being deleted", func() string {
		g, ok := s.view.Snapshot().Groups.Get("g")
		return await.Unless(!ok || g.Deleting, "%+v", g)
	})
	s.do("DELETE", one+"?dryRun=true", nil).want(200)
	s.do("DELETE", one, nil, "If-Match", r.header.Get("ETag")).want(412)
	s.do("DELETE", one, nil).want(204)
	s.do("DELETE", one, nil).want(404)
	s.do("GET", one, nil).want(404)

	s.do("POST", "/api/v1/templates", `{"name":"_module-plugins-x"}`).want(201)
	s.do("DELETE", "/api/v1/templates/_module-plugins-x", nil).want(400).is("error.code", "PROTECTED")
	s.do("PATCH", "/api/v1/templates/_module-plugins-x", `{}`).want(400).is("error.code", "PROTECTED")
	actions := map[string]int{}
	for _, e := range s.do("GET", "/api/v1/audit?class=CHANGE", nil).want(200).data() {
		m, _ := e.(map[string]any)
		if m["resourceType"] == "template" {
			actions[fmt.Sprint(m["username"], " ", m["action"])]++
		}
	}
	if got := fmt.Sprint(actions); got != "map[admin template.create:2 admin template.delete:1 admin template.edit:4 admin template.update:1]" {
		t.Errorf("the audit has %s", got)
	}
}

func TestAFileOfTextHasItsLimits(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	put := func(body string) *reply {
		return s.do("PUT", "/api/v1/templates/lobby/files/content?path=a", body)
	}
	put(`{"content":"` + strings.Repeat(`\u0001`, 1<<20) + `"}`).want(200)
	put(`{"content":"` + strings.Repeat("a", 1<<20+1) + `"}`).want(413)
	put(`{"content":"` + strings.Repeat("a", 9<<20) + `"}`).want(413)
	put(`{}`).want(422).naming("content")
	put(`{"content":1}`).want(400).naming("content")
	put(`{"content":"a","x":1}`).want(400).naming("x")
	s.do("POST", "/api/v1/templates/lobby/files/mkdir", `{"path":"`+strings.Repeat("a", 2<<20)+`"}`).want(413)
	body, kind := form(t, nil, "big", strings.Repeat("x", 1<<20+1))
	s.do("POST", "/api/v1/templates/lobby/files/upload", body, kind...).want(200)
	s.do("GET", "/api/v1/templates/lobby/files/content?path=big", nil).want(413)
}

func TestWhoReadAFileAndWritesItLateIsRefused(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	const url = "/api/v1/templates/lobby/files/content?path=a"
	first := s.do("PUT", url, `{"content":"1"}`, "If-None-Match", "*").want(200).header.Get("ETag")
	s.do("PUT", url, `{"content":"2"}`, "If-None-Match", "*").want(412).naming("a already exists")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[int]int{}
	for i := range 10 {
		wg.Go(func() {
			r, err := s.try("PUT", url, fmt.Sprintf(`{"content":"by %d"}`, i), "If-Match", first)
			free, err2 := s.try("PUT", fmt.Sprintf("/api/v1/templates/lobby/files/content?path=f%d", i), `{"content":"x"}`)
			if err != nil || err2 != nil || free.status != 200 {
				t.Errorf("%v, %v, %+v", err, err2, free)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			won[r.status]++
		})
	}
	wg.Wait()
	if won[200] != 1 || won[412] != 9 {
		t.Errorf("answers %v", won)
	}
	if r := s.do("GET", "/api/v1/templates/lobby/history?pageSize=200", nil).want(200); r.field("total") != 13.0 {
		t.Errorf("%v moves", r.field("total"))
	}
}

func TestVersionsAreListedRolledBackAndDeleted(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const one = "/api/v1/templates/lobby"
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	var hashes []string
	for i := range 3 {
		hash, _ := s.do("PUT", one+"/files/content?path=a&message=try%20"+fmt.Sprint(i), fmt.Sprintf(`{"content":"%d"}`, i)).want(200).field("hash").(string)
		hashes = append(hashes, hash)
	}
	s.do("POST", one+"/rollback", nil).want(200).is("status", "restored").is("hash", hashes[1])
	if got := s.text("lobby", "a"); got != "1" {
		t.Errorf("rolled back to %q", got)
	}
	list, _ := s.do("GET", one+"/versions", nil).want(200).body.([]any)
	var got []string
	for _, v := range list {
		m, _ := v.(map[string]any)
		got = append(got, fmt.Sprint(m["hash"], m["current"], m["message"], m["author"]))
	}
	want := []string{hashes[1] + "true" + "try 1admin", hashes[2] + "falsetry 2admin", hashes[0] + "falsetry 0admin"}
	if len(got) != 4 || fmt.Sprint(got[:3]) != fmt.Sprint(want) {
		t.Errorf("versions %q", got)
	}
	h := s.do("GET", one+"/history", nil).want(200).is("total", 5)
	latest, _ := h.data()[0].(map[string]any)
	if latest["sequence"] != 5.0 || latest["kind"] != "rollback" || latest["hash"] != hashes[1] || latest["previous"] != hashes[2] || latest["author"] != "admin" {
		t.Errorf("latest move %v", latest)
	}
	s.do("DELETE", one+"/versions/"+hashes[1], nil).want(400).is("error.code", "CURRENT_VERSION")
	s.do("DELETE", one+"/versions/nope", nil).want(400)
	s.commit(store.Create(keys.Plan("p"), fleet.StoredPlan{Plan: fleet.Plan{Group: "g", Layers: []fleet.PlanLayer{{TemplateRef: content.ParseTemplateRef("lobby"), Digest: hashes[0]}}}}))
	s.do("DELETE", one+"/versions/"+hashes[0], nil).want(409).is("error.code", "IN_USE").naming("g")
	s.do("DELETE", one+"/versions/"+hashes[2], nil).want(204)
	s.do("DELETE", one+"/versions/"+hashes[2], nil).want(404)
	s.do("POST", one+"/rollback", `{"hash":"`+hashes[2]+`"}`).want(404)
}

func TestFilesAreUploadedImportedAndExportedThroughV1(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	const one = "/api/v1/templates/lobby"
	body, kind := form(t, nil, "b.jar", "\x00\x01\xff", "sub/c.txt", "c")
	up := s.do("POST", one+"/files/upload?path=plugins", body, kind...).want(200).is("files", []string{"plugins/b.jar", "plugins/sub/c.txt"})
	s.do("GET", one, nil).want(200).is("hash", up.field("hash")).is("files", 2)
	if r := s.do("GET", one+"/files/download?path=plugins/b.jar", nil).want(200); r.raw != "\x00\x01\xff" {
		t.Errorf("got %q", r.raw)
	}
	for format, name := range map[string]string{"": "lobby.tar.gz", "zip": "lobby.zip", "tar.zst": "lobby.tar.zst", "tar": "lobby.tar"} {
		packed := s.do("GET", one+"/export?format="+format, nil)
		if format == "" {
			packed = s.do("GET", one+"/export", nil)
		}
		if packed.want(200); packed.header.Get("Content-Disposition") != `attachment; filename="`+name+`"` {
			t.Errorf("%v", packed.header)
		}
		body, kind := form(t, map[string]string{"name": "copy" + format, "description": "d", "platform": "P"}, name, packed.raw)
		s.do("POST", "/api/v1/templates/import", body, kind...).want(201).is("hash", up.field("hash")).is("description", "d").is("platform", "P")
		s.do("POST", "/api/v1/templates/import", body, kind...).want(409)
	}
	s.do("GET", one+"/export?format=rar", nil).want(422).naming("format")
	zip := s.do("GET", one+"/export?format=zip&path=plugins", nil).want(200).raw
	body, kind = form(t, nil, "p.zip", zip)
	s.do("POST", one+"/files/upload?path=x&extract=true", body, kind...).want(200).is("files", []string{"x/b.jar", "x/sub/c.txt"})
	s.do("POST", one+"/files/upload", body, kind...).want(200)
	s.do("POST", one+"/files/extract?path=p.zip&delete=true", nil).want(200).is("files", 2)
	s.do("POST", one+"/files/extract?path=p.zip", nil).want(404)
	s.do("POST", one+"/files/extract?path=b.jar", nil).want(400)
	if got := s.text("lobby", "sub/c.txt"); got != "c" {
		t.Error(got)
	}
	before := s.do("GET", one, nil).want(200).field("hash")
	for name, content := range map[string]string{"x.zip": "garbage", "y.zip": "", "z.tar.gz": zip[:40]} {
		body, kind := form(t, nil, name, content)
		s.do("POST", one+"/files/upload?extract=true", body, kind...).want(400)
		body, kind = form(t, map[string]string{"name": "never"}, name, content)
		s.do("POST", "/api/v1/templates/import", body, kind...).want(400)
	}
	s.do("POST", one+"/files/upload", "text").want(400)
	body, kind = form(t, map[string]string{"name": "never"})
	s.do("POST", "/api/v1/templates/import", body, kind...).want(400).naming("file")
	s.do("GET", one, nil).want(200).is("hash", before)
	s.do("GET", "/api/v1/templates/never", nil).want(404)
}

func TestAFormSaysWhereItsFilesGoBeforeThem(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	const one = "/api/v1/templates/lobby"
	file, kind := form(t, nil, "a.txt", "a")
	s.do("POST", one+"/files/upload", file, kind...).want(200)
	zip := s.do("GET", one+"/export?format=zip", nil).want(200).raw
	ordered := func(parts ...string) (string, []string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for i := 0; i+1 < len(parts); i += 2 {
			if parts[i] != "file" {
				_ = w.WriteField(parts[i], parts[i+1])
			} else if part, err := w.CreateFormFile("file", "x.zip"); err == nil {
				_, _ = io.WriteString(part, parts[i+1])
			}
		}
		_ = w.Close()
		return b.String(), []string{"Content-Type", w.FormDataContentType()}
	}
	send := func(query string, parts ...string) *reply {
		body, kind := ordered(parts...)
		return s.do("POST", one+"/files/upload"+query, body, kind...)
	}
	send("", "path", "sub", "file", zip).want(200).is("files", []string{"sub/x.zip"})
	send("", "path", "deep/er", "extract", "true", "other", "x", "file", zip).want(200).is("files", []string{"deep/er/a.txt"})
	send("?path=q&extract=true", "extract", "false", "file", zip).want(200).is("files", []string{"q/x.zip"})
	before := s.do("GET", one, nil).want(200).field("hash")
	send("", "file", zip, "path", "late").want(422).naming("path").naming("before the files, or in the query")
	send("", "file", zip, "extract", "true").want(422).naming("extract")
	send("", "extract", "yes", "file", zip).want(422).naming("must be true or false")
	send("", "path", strings.Repeat("p", 5000), "file", zip).want(400).naming("path")
	send("", "path", "../up", "file", zip).want(400)
	s.do("GET", one, nil).want(200).is("hash", before)
}

func TestTheLastTemplateOfAGroupThatIsUsedStays(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	for _, name := range []string{"pool/p", "pool/q", "one/x"} {
		s.do("POST", "/api/v1/templates", map[string]any{"name": name}).want(201)
	}
	s.do("PUT", "/api/configurations/uni", map[string]any{
		"command": "run", "templateInstallationConfig": map[string]any{"allInGroups": []string{"pool"}, "oneInGroups": []string{"one"}},
	}).want(204)
	s.do("DELETE", "/api/v1/templates/pool%2Fp", nil).want(204)
	for _, last := range []string{"pool%2Fq", "one%2Fx"} {
		s.do("DELETE", "/api/v1/templates/"+last, nil).want(409).naming("uni").naming("last one of the template group")
	}
	s.do("POST", "/api/v1/templates", map[string]any{"name": "pool/r"}).want(201)
	s.do("DELETE", "/api/v1/templates/pool%2Fq", nil).want(204)
	s.do("DELETE", "/api/configurations/uni", nil).want(204)
	s.do("DELETE", "/api/v1/templates/one%2Fx", nil).want(204)
}

func TestFilesAreWrittenThroughTheOlderDialect(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	const files = "/api/templates/my/arena/files/"
	s.do("DELETE", files+"a", nil).want(404)
	s.do("POST", files+"deep/a+b%20c.bin", "\x00\xff").want(201).is("message", "File created").is("path", "deep/a+b c.bin")
	s.do("POST", files+"deep/a+b%20c.bin", "x").want(409)
	s.do("PATCH", files+"server.properties", "port=%PORT%").want(200).is("message", "File updated").is("path", "server.properties")
	s.do("PATCH", files+"server.properties", "").want(200)
	if r := s.do("GET", files+"deep/a+b%20c.bin", nil).want(200); r.raw != "\x00\xff" {
		t.Errorf("got %q", r.raw)
	}
	zip := s.do("POST", "/api/templates/my/arena/export", nil).want(200)
	if zip.header.Get("Content-Type") != "application/zip" || zip.header.Get("Content-Disposition") != `attachment; filename="my-arena.zip"` {
		t.Errorf("%v", zip.header)
	}
	s.do("POST", "/api/templates/my/copy/import", zip.raw).want(200).is("message", "Template imported").is("group", "my").is("name", "copy")
	if a, b := s.do("GET", "/api/templates/my/arena", nil).want(200), s.do("GET", "/api/templates/my/copy", nil).want(200); a.field("digest") != b.field("digest") {
		t.Errorf("%s imported as %s", a.raw, b.raw)
	}
	s.do("DELETE", files+"server.properties", nil).want(200).is("message", "File deleted").is("path", "server.properties")
	s.do("DELETE", files+"server.properties", nil).want(404)
	s.do("POST", "/api/templates/my/arena/import", zip.raw).want(200)
	s.do("GET", "/api/templates/my/arena/files", nil).want(200).is("files", []string{"deep/a+b c.bin", "server.properties"})
	for _, garbage := range []string{"garbage", "", zip.raw[:30]} {
		s.do("POST", "/api/templates/my/never/import", garbage).want(400)
	}
	s.do("GET", "/api/templates/my/never", nil).want(404)
	s.do("POST", "/api/templates/my/none/export", nil).want(404).is("error", "Template not found")
	for _, name := range []string{"..%2f..", "%2e%2e", "a%5cb", ".hidden"} {
		s.do("PATCH", "/api/templates/my/"+name+"/files/a", "x").want(404)
		s.do("POST", "/api/templates/my/"+name+"/import", zip.raw).want(404)
	}
}

func TestNoPathThatIsWrittenLeadsOut(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("PATCH", "/api/templates/my/lobby/files/a", "inside").want(200)
	before := s.do("GET", "/api/v1/templates/my%2Flobby", nil).want(200).field("hash")
	refused := func(r *reply) {
		t.Helper()
		if r.status != 400 && r.status != 404 {
			t.Errorf("%s: %d %s", r.what, r.status, r.raw)
		}
		r.enveloped()
	}
	const one = "/api/v1/templates/my%2Flobby/files"
	for _, p := range hostile {
		for _, method := range []string{"PATCH", "POST", "DELETE"} {
			refused(s.do(method, "/api/templates/my/lobby/files/"+p, "x"))
		}
		refused(s.do("PUT", one+"/content?path="+p, `{"content":"x"}`))
		refused(s.do("POST", one+"/mkdir?path="+p, nil))
		refused(s.do("DELETE", one+"?path="+p, nil))
		refused(s.do("POST", one+"/extract?path="+p, nil))
		body, kind := form(t, nil, "x", "y")
		refused(s.do("POST", one+"/upload?path="+p, body, kind...))
	}
	for _, p := range []string{"..", "../x", "/etc/passwd", `..\\x`, `a\u0000b`, ".orrery-lock"} {
		refused(s.do("POST", one+"/rename", `{"from":"a","to":"`+p+`"}`))
		refused(s.do("POST", one+"/rename", `{"from":"`+p+`","to":"b"}`))
		refused(s.do("POST", one+"/mkdir", `{"path":"`+p+`"}`))
	}
	if after := s.do("GET", "/api/v1/templates/my%2Flobby", nil).want(200).field("hash"); after != before {
		t.Errorf("a refused edit made version %v of %v", after, before)
	}
}

func TestOnlyWhoMayChangesTemplates(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("PATCH", "/api/templates/default/lobby/files/a", "x").want(200)
	viewer, operator := s.user("vera", "VIEWER"), s.user("otto", "OPERATOR")
	before := s.revision()
	const one = "/api/v1/templates/lobby"
	for _, m := range [][3]string{
		{"POST", "/api/v1/templates", `{"name":"x"}`},
		{"POST", "/api/v1/templates/import", ``},
		{"PATCH", one, `{}`},
		{"DELETE", one, ``},
		{"DELETE", one + "/versions/" + strings.Repeat("a", 64), ``},
		{"POST", one + "/rollback", ``},
		{"PUT", one + "/files/content?path=a", `{"content":"y"}`},
		{"POST", one + "/files/mkdir?path=d", ``},
		{"POST", one + "/files/rename", `{"from":"a","to":"b"}`},
		{"POST", one + "/files/upload", ``},
		{"POST", one + "/files/extract?path=a", ``},
		{"DELETE", one + "/files?path=a", ``},
		{"PATCH", "/api/templates/default/lobby/files/a", "y"},
		{"POST", "/api/templates/default/lobby/files/b", "y"},
		{"DELETE", "/api/templates/default/lobby/files/a", ""},
		{"POST", "/api/templates/default/lobby/import", ""},
	} {
		viewer.do(m[0], m[1], m[2]).want(403)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
	operator.do("GET", one+"/export", nil).want(200)
	operator.do("POST", "/api/templates/default/lobby/export", nil).want(200)
	operator.do("PUT", one+"/files/content?path=a", `{"content":"y"}`).want(200)
	operator.do("DELETE", one, nil).want(403)
}

func TestAnUploadThatBreaksOffLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("PATCH", "/api/templates/default/lobby/files/a", "whole").want(200)
	for range 8 { // more often than the breaker's threshold
		conn, err := net.Dial("tcp", s.gateway.Addr())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PATCH /api/templates/default/lobby/files/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\nhalf", s.token)
		_ = conn.Close()
	}
	await.That(t, "the publishes ended", func() string {
		open, _, err := store.List(t.Context(), s.store, keys.TemplatePublishes())
		return await.Unless(err == nil && len(open) == 0, "%v, %v", open, err)
	})
	if got := s.text("lobby", "a"); got != "whole" {
		t.Errorf("the file holds %q", got)
	}
	s.do("PATCH", "/api/templates/default/lobby/files/a", "again").want(200)
}

// trickle is a body that sends the next piece after the previous one was read.
type trickle struct {
	pieces chan string
	rest   string
}

func (r *trickle) Read(p []byte) (int, error) {
	if r.rest == "" {
		piece, ok := <-r.pieces
		if !ok {
			return 0, io.EOF
		}
		r.rest = piece
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestAnUploadIsPassedOnAsItComes(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	body := &trickle{pieces: make(chan string)}
	answered := make(chan *http.Response, 1)
	go func() {
		defer close(answered)
		req, err := http.NewRequestWithContext(t.Context(), "PATCH", s.url+"/api/templates/default/lobby/files/big", body)
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		if resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req); err == nil {
			answered <- resp
		}
	}()
	piece := strings.Repeat("x", 1<<20)
	body.pieces <- piece
	await.That(t, "the template service takes it before it has come whole", func() string {
		open, _, err := store.List(t.Context(), s.store, keys.TemplatePublishes())
		return await.Unless(err == nil && len(open) == 1, "%v, %v", open, err)
	})
	for range 3 {
		body.pieces <- piece
	}
	close(body.pieces)
	select {
	case resp := <-answered:
		if resp == nil || resp.StatusCode != 200 {
			t.Fatalf("%+v", resp)
		}
		_ = resp.Body.Close()
	case <-time.After(await.Patience):
		t.Fatal("no answer")
	}
	s.do("GET", "/api/v1/templates/lobby", nil).want(200).is("sizeBytes", 4<<20)
}

func TestAnExportKeepsTheDefinitionsOfVariables(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	const one = "/api/v1/templates/lobby"
	body, kind := form(t, nil, "a.txt", "slots=%slots%")
	s.do("POST", one+"/files/upload", body, kind...).want(200)
	s.do("PUT", one+"/variables", `[{"key":"slots","type":"INT","defaultValue":"20","validation":{"min":1},"scope":"GROUP","description":"d"},
		{"key":"motd","defaultValue":"hidden words","visibility":"ADMIN","scope":"TEMPLATE","required":true}]`).want(200)
	hash := s.do("GET", one, nil).want(200).field("hash")
	defined := s.do("GET", one+"/variables", nil).want(200).raw
	imported := func(who *site, name, format string) {
		t.Helper()
		packed := who.do("GET", one+"/export?format="+format, nil).want(200)
		body, kind := form(t, map[string]string{"name": name}, "x."+format, packed.raw)
		s.do("POST", "/api/v1/templates/import", body, kind...).want(201)
	}
	for n, format := range []string{"tar.gz", "tar.zst", "tar", "zip"} {
		name := fmt.Sprint("copy", n)
		imported(s.site, name, format)
		s.do("GET", "/api/v1/templates/"+name, nil).want(200).is("hash", hash).is("files", 1)
		if got := s.do("GET", "/api/v1/templates/"+name+"/variables", nil).want(200).raw; got != defined {
			t.Errorf("%s: %s, want %s", format, got, defined)
		}
	}

	operator := s.user("olga", "OPERATOR")
	if packed := operator.do("GET", one+"/export?format=tar", nil).want(200).raw; strings.Contains(packed, "hidden words") {
		t.Error("the archive has a default that whoever packs it is not shown")
	}
	imported(operator, "theirs", "zip")
	got := s.do("GET", "/api/v1/templates/theirs/variables", nil).want(200)
	got.is("0.key", "slots").is("0.defaultValue", "20").is("1.key", "motd").is("1.defaultValue", nil).is("1.visibility", "ADMIN").is("1.required", false)

	s.do("POST", "/api/v1/templates", `{"name":"own"}`).want(201)
	s.do("PUT", "/api/v1/templates/own/variables", `[{"key":"other"}]`).want(200)
	zip := s.do("POST", "/api/templates/default/lobby/export", nil)
	s.do("POST", "/api/templates/default/own/import", zip.want(200).raw)
	s.do("GET", "/api/v1/templates/own/variables", nil).want(200).is("0.key", "other").is("1.key", nil)
	s.do("GET", "/api/v1/templates/own", nil).want(200).is("files", 1)

	for field, bad := range map[string]string{"no list": `{"key":"x"}`, "[0].type": `[{"key":"x","type":"WRONG","scope":"GROUP"}]`} {
		body, kind := form(t, map[string]string{"name": "bad"}, "x.tar", tarOf(t, ".orrery-variables.json", bad))
		s.do("POST", "/api/v1/templates/import", body, kind...).want(422).naming(field)
	}
}

// tarOf returns a tar archive with one file.
func tarOf(t *testing.T, name, content string) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
