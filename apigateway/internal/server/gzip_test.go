package server

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/apigateway/internal/server/bodycache"
	"github.com/orreryhq/orrery/libs/errs"
)

var long = strings.Repeat(`{"name":"lobby"}`, 100)

func TestTextIsPackedForWhoTakesThat(t *testing.T) {
	e := gin.New()
	e.Use((&Server{gzipWriters: newGzipWriters()}).compress, unlessSame)
	e.GET("/json", func(c *gin.Context) { ETag(c, 7); c.Data(200, "application/json; charset=utf-8", []byte(long)) })
	kept := bodycache.NewBody([]byte(long))
	e.GET("/kept", func(c *gin.Context) { ETag(c, 7); SendKept(c, kept) })
	e.GET("/kept/short", func(c *gin.Context) { SendKept(c, bodycache.NewBody([]byte(`"lobby"`))) })
	e.GET("/pieces", func(c *gin.Context) {
		c.Header("Content-Type", "text/plain")
		for _, b := range []byte(long) {
			_, _ = c.Writer.Write([]byte{b})
		}
	})
	e.GET("/short", func(c *gin.Context) { c.JSON(200, "lobby") })
	e.GET("/nothing", func(c *gin.Context) { c.Status(204) })
	e.GET("/image", func(c *gin.Context) { c.Data(200, "image/png", []byte(long)) })
	e.GET("/encoded", func(c *gin.Context) {
		c.Header("Content-Encoding", "zstd")
		c.Data(200, "application/json", []byte(long))
	})
	e.GET("/parts", func(c *gin.Context) {
		c.Header("Content-Type", "text/plain")
		http.ServeContent(c.Writer, c.Request, "x.txt", time.Time{}, strings.NewReader(long))
	})
	e.GET("/stream", func(c *gin.Context) {
		c.Header("Content-Type", "text/event-stream")
		c.Writer.WriteHeaderNow()
		_, _ = c.Writer.WriteString(long)
		c.Writer.Flush()
	})
	e.GET("/flushed", func(c *gin.Context) {
		c.Header("Content-Type", "text/plain")
		_, _ = c.Writer.WriteString("first ")
		c.Writer.Flush()
		_, _ = c.Writer.WriteString(long)
	})
	for _, c := range []struct {
		path, accepts, body string
		status              int
		packed              bool
	}{
		{"/json", "gzip", long, 200, true},
		{"/json", "br, GZIP;q=0.5", long, 200, true},
		{"/pieces", "gzip", long, 200, true},
		{"/json", "", long, 200, false},
		{"/json", "br", long, 200, false},
		{"/json", "gzip;q=0", long, 200, false},
		{"/kept", "gzip", long, 200, true},
		{"/kept", "br", long, 200, false},
		{"/kept/short", "gzip", `"lobby"`, 200, false},
		{"/short", "gzip", `"lobby"`, 200, false},
		{"/nothing", "gzip", "", 204, false},
		{"/image", "gzip", long, 200, false},
		{"/encoded", "gzip", long, 200, false},
		{"/parts", "gzip", long, 200, false},
		{"/stream", "gzip", long, 200, false},
		{"/flushed", "gzip", "first " + long, 200, false},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Header.Set("Accept-Encoding", c.accepts)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		body := w.Body.Bytes()
		if is := w.Header().Get("Content-Encoding") == "gzip"; is != c.packed {
			t.Errorf("%s for %q: packed %v", c.path, c.accepts, is)
			continue
		}
		if c.packed {
			unpacked, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if len(body) > len(long)/2 {
				t.Errorf("%s: packed from %d to %d bytes", c.path, len(long), len(body))
			}
			if body, err = io.ReadAll(unpacked); err != nil {
				t.Fatal(err)
			}
			if w.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s: Vary is %q", c.path, w.Header().Get("Vary"))
			}
		}
		if w.Code != c.status || string(body) != c.body {
			t.Errorf("%s for %q: %d %.60q", c.path, c.accepts, w.Code, body)
		}
		if c.path == "/json" && w.Header().Get("ETag") != `"7"` {
			t.Errorf("%s for %q: the ETag is %s", c.path, c.accepts, w.Header().Get("ETag"))
		}
	}
}

func TestWhoHasItIsToldThatItIsTheSame(t *testing.T) {
	e := gin.New()
	e.Use((&Server{gzipWriters: newGzipWriters()}).compress, unlessSame, func(c *gin.Context) { c.Writer.Header().Add("Vary", "Origin") })
	e.Match([]string{"GET", "PUT"}, "/one", func(c *gin.Context) { WholeETag(c, 7); c.Data(200, "application/json", []byte(long)) })
	e.GET("/live", func(c *gin.Context) { ETag(c, 7); c.Data(200, "application/json", []byte(long)) })
	e.GET("/copied", func(c *gin.Context) { c.Header("ETag", `"7"`); _, _ = io.Copy(c.Writer, strings.NewReader(long)) })
	e.GET("/none", func(c *gin.Context) { c.Data(200, "application/json", []byte(long)) })
	e.GET("/gone", func(c *gin.Context) { WholeETag(c, 7); c.Data(404, "application/json", []byte(long)) })
	for _, c := range []struct {
		method, path, known string
		status              int
	}{
		{"GET", "/one", `"7"`, 304},
		{"GET", "/one", `"5", W/"7"`, 304},
		{"GET", "/one", `*`, 304},
		{"GET", "/copied", `"7"`, 304},
		{"GET", "/live", `"7"`, 200}, // its figures may differ
		{"GET", "/one", `"6"`, 200},
		{"GET", "/one", `7`, 200},
		{"GET", "/one", ``, 200},
		{"GET", "/none", `*`, 200},
		{"GET", "/gone", `"7"`, 404},
		{"PUT", "/one", `"7"`, 200},
	} {
		for _, accepts := range []string{"", "gzip"} {
			r := httptest.NewRequest(c.method, c.path, nil)
			r.Header.Set("If-None-Match", c.known)
			r.Header.Set("Accept-Encoding", accepts)
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			if w.Code != c.status || (w.Body.Len() == 0) != (c.status == 304) {
				t.Errorf("%s %s with %s, %q: %d and %d bytes", c.method, c.path, c.known, accepts, w.Code, w.Body.Len())
			}
			if c.status == 304 && w.Header().Get("ETag") != `"7"` {
				t.Errorf("%s %s with %s: the ETag is %q", c.method, c.path, c.known, w.Header().Get("ETag"))
			}
			if vary := strings.Join(w.Header().Values("Vary"), ", "); c.status == 304 && accepts == "gzip" && vary != "Origin, Accept-Encoding" {
				t.Errorf("%s %s with %s: Vary is %q", c.method, c.path, c.known, vary)
			}
		}
	}
}

func TestWhatAnAnswerDependsOnIsSaidWithoutItsBodyToo(t *testing.T) {
	e := gin.New()
	e.Use((&Server{gzipWriters: newGzipWriters()}).compress, func(c *gin.Context) { c.Writer.Header().Add("Vary", "Origin") })
	kept := bodycache.NewBody([]byte(long))
	for path, answer := range map[string]gin.HandlerFunc{
		"/json": func(c *gin.Context) { c.Data(200, "application/json", []byte(long)) },
		"/kept": func(c *gin.Context) { SendKept(c, kept) },
	} {
		e.Match([]string{"GET", "HEAD"}, path, answer)
		for _, method := range []string{"GET", "HEAD"} {
			r := httptest.NewRequest(method, path, nil)
			r.Header.Set("Accept-Encoding", "gzip")
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			vary := w.Header().Values("Vary")
			slices.Sort(vary)
			if diff := cmp.Diff([]string{"Accept-Encoding", "Origin"}, vary); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", method, path, diff)
			}
		}
	}
}

func TestNothingIsLeftOfAnAnswerThatAnotherWasFasterThan(t *testing.T) {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest("POST", "/api/v1/groups", nil)
	w := &withheld{ResponseWriter: c.Writer}
	c.Writer = w
	Fail(c, errs.New(errs.Unavailable, "retry"))
	c.Header("ETag", `"7"`)
	c.Header("Retry-After", "1")
	w.drop()
	if w.Written() || w.Header().Get("Retry-After") != "" || w.Header().Get("ETag") != "" {
		t.Errorf("left are %v and %q", w.Header(), w.body.String())
	}
}
