package server

// Results is the answer to a request for the same action on several objects.
type Results[T any] struct {
	Action string `json:"action"`
	DryRun bool   `json:"dryRun"`
	// Selected counts the objects. Each has succeeded or failed. Changed counts those that the action
	// changed.
	Selected  int `json:"selected"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Changed   int `json:"changed"`
	Data      []T `json:"data"`
}

// Add adds the result of an object.
func (r *Results[T]) Add(shown T, ok, changed bool) {
	r.Data = append(r.Data, shown)
	r.Selected++
	if ok {
		r.Succeeded++
	} else {
		r.Failed++
	}
	if changed {
		r.Changed++
	}
}

// Complete returns the results with a list that is never null.
func (r *Results[T]) Complete() *Results[T] {
	if r.Data == nil {
		r.Data = []T{}
	}
	return r
}
