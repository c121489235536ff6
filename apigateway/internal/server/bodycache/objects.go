package bodycache

import "sync"

// maxObjects limits each of the two generations of cached objects.
const maxObjects = 16_384

// Objects caches encoded objects by key. S contains everything that the encoding depends on:
// immutable records and other comparable values.
type Objects[K, S comparable, V any] struct {
	mu sync.RWMutex
	// young has the recent entries. When it is full, it replaces old.
	young, old map[K]object[S, V]
}

type object[S comparable, V any] struct {
	from  S
	value V
}

// NewObjects returns an empty cache.
func NewObjects[K, S comparable, V any]() *Objects[K, S, V] {
	return &Objects[K, S, V]{young: map[K]object[S, V]{}}
}

// Get returns the cached value if it was encoded from the same source, else the result of encode.
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
