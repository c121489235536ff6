package resource

// Values are variables or environment entries. null removes an entry.
type Values map[string]*string

// Set assigns a field if it was given.
func Set[T any](field *T, given *T) {
	if given != nil {
		*field = *given
	}
}

// Given returns the entries that are not null.
func (v *Values) Given() map[string]string {
	if v == nil || len(*v) == 0 {
		return nil
	}
	out := make(map[string]string, len(*v))
	for k, entry := range *v {
		if entry != nil {
			out[k] = *entry
		}
	}
	return out
}

// List returns a copy that is not nil, so that an empty list encodes as [].
func List[T any](in []T) *[]T {
	out := append([]T{}, in...)
	return &out
}

// ValuesOf converts a map. The result is never nil.
func ValuesOf(m map[string]string) *Values {
	out := Values{}
	for k, v := range m {
		out[k] = &v
	}
	return &out
}

// OrNull returns nil for the zero value, so that it encodes as null.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
