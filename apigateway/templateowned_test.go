package apigateway

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestWhatASourceOwnsIsNotChangedThroughTheAPIInEitherDialect(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.drop("g/t", map[string]string{"f": "one"})
	s.do("PUT", "/api/v1/template-sources/bucket", `{"kind":"s3","url":"http://127.0.0.1:1","bucket":"templates","paused":true}`).want(201)
	key := keys.TemplateHead(content.TemplateRef{Group: "g", Name: "t"})
	head, err := store.Get(t.Context(), s.store, key)
	if err != nil {
		t.Fatal(err)
	}
	head.Origin = "bucket" // as published by a source
	s.commit(store.Replace(key, head, head.ModRev))
	file, kind := form(t, nil, "f", "two")
	packed := zipped(t, member{name: "f", content: "two"})
	archive, archiveKind := form(t, nil, "a.zip", packed)
	const v1, old = "/api/v1/templates/g%2Ft", "/api/templates/g/t"
	for what, refused := range map[string]*reply{
		"a file, v1":         s.do("PUT", v1+"/files/content?path=f", `{"content":"two"}`),
		"an upload, v1":      s.do("POST", v1+"/files/upload", file, kind...),
		"an archive, v1":     s.do("POST", v1+"/files/upload?extract=true", archive, archiveKind...),
		"a directory, v1":    s.do("POST", v1+"/files/mkdir", `{"path":"d"}`),
		"a new name, v1":     s.do("POST", v1+"/files/rename", `{"from":"f","to":"g"}`),
		"a removed file, v1": s.do("DELETE", v1+"/files?path=f", nil),
		"a draft, v1":        s.do("PUT", v1+"/files/content?path=f&rehash=false", `{"content":"two"}`),
		"a file":             s.do("PATCH", old+"/files/f", "two"),
		"a new file":         s.do("POST", old+"/files/new", "two"),
		"a removed file":     s.do("DELETE", old+"/files/f", nil),
		"an import":          s.do("POST", old+"/import", packed),
	} {
		t.Run(what, func(t *testing.T) {
			refused.want(409).naming("template g/t comes from the source bucket").naming("change it there")
		})
	}
	if now, err := store.Get(t.Context(), s.store, key); err != nil || now.Digest != head.Digest {
		t.Errorf("%+v, %v", now, err)
	}
}
