// Package keys is the layout of etcd: one function for the key of each kind of record, with
// the type of its value. Each comment says what the record means and who writes it;
// docs/reference/keys.md is generated from them.
package keys

import (
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Root is the prefix of all keys. Values are JSON.
const Root = "/orrery/v1/"

// Schema is the version of the key layout that this build reads and writes.
const Schema = 1

// Key is the key of one record of type T.
type Key[T any] struct{ path string }

// String is the full key.
func (k Key[T]) String() string { return k.path }

// Prefix is the prefix of the keys of records of type T.
type Prefix[T any] struct{ path string }

// String is the full prefix. It ends in a slash.
func (p Prefix[T]) String() string { return p.path }

// NameClaim is the record at Name.
type NameClaim struct {
	record.Rev
	ID fleet.InstanceID `json:"id"`
}

// NameMark changes with each write of a group that begins to give fixed names to its instances. A
// transaction that creates a group compares it, and one that gives names replaces it, so that two
// gateways never give the same name.
type NameMark struct{ record.Rev }

// Blank replaces a damaged record with the zero mark.
func (m *NameMark) Blank() { *m = NameMark{} }

// Split cuts a full key into its kind and the segments after it. ok is false for keys
// outside Root.
func Split(key string) (kind string, rest []string, ok bool) {
	tail, ok := strings.CutPrefix(key, Root)
	if !ok {
		return "", nil, false
	}
	parts := strings.Split(tail, "/")
	return parts[0], parts[1:], true
}
