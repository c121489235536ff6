package server

import (
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
)

// Page is one page of a list.
type Page[T any] struct {
	Data     []T `json:"data"`
	Page     int `json:"page"`
	PageSize int `json:"pageSize"`
	Total    int `json:"total"`
}

// SendPage answers with the page of a list that ?page and ?pageSize ask for; the
// size is clamped to limit, which is also the default. show is asked for the
// page's items only. A page past the end is empty.
func SendPage[S, T any](c *gin.Context, all []S, limit int, show func(S) T) {
	page, err := number(c, "page", 1)
	if err == nil {
		var size int
		if size, err = number(c, "pageSize", limit); err == nil {
			c.JSON(http.StatusOK, cut(all, max(page, 1), min(max(size, 1), limit), show))
			return
		}
	}
	Fail(c, err)
}

func cut[S, T any](all []S, page, size int, show func(S) T) Page[T] {
	out := Page[T]{Data: []T{}, Page: page, PageSize: size, Total: len(all)}
	if page-1 > len(all)/size {
		return out
	}
	from := (page - 1) * size
	for _, s := range all[min(from, len(all)):min(from+size, len(all))] {
		out.Data = append(out.Data, show(s))
	}
	return out
}

func number(c *gin.Context, name string, otherwise int) (int, error) {
	text := c.Query(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, &errs.Error{Kind: errs.Malformed, Field: name, Message: name + " must be a whole number"}
	}
	return n, nil
}

// Number is a whole number of the query, or otherwise when it is absent. ok is
// false when the request was answered with 400.
func Number(c *gin.Context, name string, otherwise int) (n int, ok bool) {
	n, err := number(c, name, otherwise)
	if err != nil {
		Fail(c, err)
	}
	return n, err == nil
}
