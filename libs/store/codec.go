package store

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/nesting"
)

// revisioned is a record that stores the revisions it was read at.
type revisioned interface{ SetRev(create, mod int64) }

// recordParser is a record with its own JSON decoder for the usual case; see fleet.Placement.
type recordParser interface{ ParseRecord([]byte) bool }

// mark is a record whose value does not matter, only its revision. It can be compared even if its
// value is damaged.
type mark interface{ Blank() }

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", errs.WrapAs(errs.Internal, "store.encode", fmt.Errorf("%T: %w", v, err))
	}
	if nesting.Exceeds(b, 2*nesting.Max) { // the decoder of a later reader would refuse it
		return "", errs.New(errs.Invalid, "a record may not be nested deeper than %d levels: simplify its values", 2*nesting.Max)
	}
	return string(b), nil
}

// KeyValue is a raw key-value pair as delivered by a follower.
type KeyValue struct {
	Key       string
	Value     []byte
	CreateRev int64
	ModRev    int64
}

// Decode decodes a record of type T and sets its revisions.
func Decode[T any](kv KeyValue) (T, error) {
	v, err := DecodeNew[T](kv)
	return *v, err
}

// DecodeNew is Decode with a pointer as the result, which is never nil.
func DecodeNew[T any](kv KeyValue) (*T, error) {
	v := new(T)
	if p, ok := any(v).(recordParser); ok && p.ParseRecord(kv.Value) {
		any(v).(revisioned).SetRev(kv.CreateRev, kv.ModRev)
		return v, nil
	}
	if err := json.Unmarshal(kv.Value, v); err != nil {
		m, ok := any(v).(mark)
		if !ok {
			return v, errs.WrapAs(errs.Internal, "store.Decode", fmt.Errorf("%s at revision %d: %w", kv.Key, kv.ModRev, err))
		}
		m.Blank()
	}
	if r, ok := any(v).(revisioned); ok {
		r.SetRev(kv.CreateRev, kv.ModRev)
	}
	return v, nil
}

func raw(kv *mvccpb.KeyValue) KeyValue {
	return KeyValue{Key: string(kv.Key), Value: kv.Value, CreateRev: kv.CreateRevision, ModRev: kv.ModRevision}
}
