package encoded

import "sync"

// maxObjects bounds the objects that are kept, twice.
const maxObjects = 32_768

// Objects keeps what single objects were encoded to, by name. S is what an object is shown
// from: records that are never changed, and whatever else the body depends on.
type Objects[K, S comparable, V any] struct {
	mu sync.RWMutex
	// Those that were made lately are in young. It becomes old when it is full.
	young, old map[K]object[S, V]
}

type object[S comparable, V any] struct {
	from  S
	value V
}

// NewObjects keeps nothing yet.
func NewObjects[K, S comparable, V any]() *Objects[K, S, V] {
	return &Objects[K, S, V]{young: map[K]object[S, V]{}}
}

// Get is what encode makes of an object, or made of it when it was shown from the same.
func (o *Objects[K, S, V]) Get(name K, from S, encode func() V) V {
	if v, ok := o.find(name, from); ok {
		return v
	}
	v := encode()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.young) >= maxObjects {
		o.old, o.young = o.young, map[K]object[S, V]{}
	}
	o.young[name] = object[S, V]{from, v}
	return v
}

func (o *Objects[K, S, V]) find(name K, from S) (V, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	found, ok := o.young[name]
	if !ok {
		found, ok = o.old[name]
	}
	return found.value, ok && found.from == from
}
