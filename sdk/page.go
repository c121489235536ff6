package orrery

import "iter"

// Page is a part of a list.
type Page[T any] struct {
	Data []T `json:"data"`
	// Page is the number of the page, from 1.
	Page int `json:"page"`
	// PageSize is how many elements a page has at most.
	PageSize int `json:"pageSize"`
	// Total is the number of elements on all pages.
	Total int `json:"total"`
	// NextCursor continues a list that has cursors. It is empty otherwise, and on the last page.
	NextCursor string `json:"nextCursor,omitempty"`
}

// largestPage is the page size that iterators ask for. A gateway reduces it to the largest size of
// the list.
const largestPage = 1000

// all returns the elements of the pages that read returns, until one is empty or all elements were
// seen. The last element comes with an error if a page cannot be read.
func all[T any](read func(page, size int) (*Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		seen := 0
		for number := 1; ; number++ {
			page, err := read(number, largestPage)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, element := range page.Data {
				if !yield(element, nil) {
					return
				}
			}
			seen += len(page.Data)
			if len(page.Data) == 0 || seen >= page.Total {
				return
			}
		}
	}
}
