// Package record holds what all stored records share: their revisions, and a fast reader
// for the JSON of the records that are read most.
package record

// Rev holds the revisions of a stored record: when its key was created and when it was last
// written. Zero means that the record was not read from the store. The store fills it in; it is
// not part of the stored value.
type Rev struct {
	CreateRev int64 `json:"-"`
	ModRev    int64 `json:"-"`
}

// SetRev sets the revisions of a decoded value. Only the store's codec calls it.
func (r *Rev) SetRev(create, mod int64) { r.CreateRev, r.ModRev = create, mod }
