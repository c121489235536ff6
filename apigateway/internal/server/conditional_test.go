package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
)

func TestAFileThatIsKnownIsNotRead(t *testing.T) {
	e := newEngine()
	e.Use(unlessSame)
	read := false
	e.GET("/file", func(c *gin.Context) {
		if !Same(c, "abc") {
			read = true
			c.String(http.StatusOK, "content")
		}
	})
	for header, want := range map[string]int{`"abc"`: 304, `W/"abc", "x"`: 304, "*": 304, `"abcd"`: 200, "": 200} {
		read = false
		r, w := httptest.NewRequest(http.MethodGet, "/file", nil), httptest.NewRecorder()
		r.Header.Set("If-None-Match", header)
		e.ServeHTTP(w, r)
		if w.Code != want || read != (want == 200) || w.Header().Get("ETag") != `"abc"` {
			t.Errorf("%s: %d, read: %v, ETag %s", header, w.Code, read, w.Header().Get("ETag"))
		}
	}
}
