package server

import (
	"fmt"
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

// SendPage sends the page of a list that ?page and ?pageSize select. limit is the default and the
// maximum size. show is called for the items of the page only. A page past the end is empty.
func SendPage[S, T any](c *gin.Context, all []S, limit int, show func(S) T) {
	SendPart(c, limit, func(from, n int) ([]S, int, error) {
		from = min(from, len(all))
		return all[from:min(from+n, len(all))], len(all), nil
	}, show)
}

// SendPart is SendPage for a list that is read page by page: read returns at most n items
// starting at from, and the total.
func SendPart[S, T any](c *gin.Context, limit int, read func(from, n int) (part []S, total int, err error), show func(S) T) {
	wanted, ok := PageOf(c, limit, limit)
	if !ok {
		return
	}
	out := Page[T]{Data: []T{}, Page: wanted.Number, PageSize: wanted.Size}
	part, total, err := read(wanted.from(), out.PageSize)
	if err != nil {
		Fail(c, err)
		return
	}
	for _, s := range part {
		out.Data = append(out.Data, show(s))
	}
	out.Total = total
	c.JSON(http.StatusOK, out)
}

// Wanted is the page of a list that a request selects.
type Wanted struct {
	// Number is 1 for the first page. Size is the number of items per page.
	Number, Size int
}

// PageOf parses ?page and ?pageSize. The default size is otherwise, the maximum limit. If ok is
// false, a 400 was sent.
func PageOf(c *gin.Context, otherwise, limit int) (w Wanted, ok bool) {
	number, ok := Number(c, "page", 1)
	if !ok {
		return w, false
	}
	size, ok := Number(c, "pageSize", otherwise)
	return Wanted{Number: max(number, 1), Size: min(max(size, 1), limit)}, ok
}

// from returns the index of the page's first item.
func (w Wanted) from() int { return min(w.Number-1, furthest) * w.Size }

// EncodePage encodes a page in the format of SendPage. show appends an item.
func EncodePage[S any](w Wanted, all []S, show func(to []byte, item S) []byte) []byte {
	out := []byte(`{"data":[`)
	from := min(w.from(), len(all))
	for n, item := range all[from:min(from+w.Size, len(all))] {
		if n > 0 {
			out = append(out, ',')
		}
		out = show(out, item)
	}
	return fmt.Appendf(out, `],"page":%d,"pageSize":%d,"total":%d}`, w.Number, w.Size, len(all))
}

// furthest limits page numbers to avoid overflow.
const furthest = 1 << 30

// Number parses an integer query parameter; otherwise is its default. If ok is false, a 400 was sent.
func Number(c *gin.Context, name string, otherwise int) (n int, ok bool) {
	text := c.Query(name)
	if text == "" {
		return otherwise, true
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		Fail(c, &errs.Error{Kind: errs.Malformed, Field: name, Message: name + " must be a whole number"})
		return 0, false
	}
	return n, true
}
