package encoded

import (
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// maxKnown and maxKnownBytes bound what a Known keeps: at most 512 KiB, since tenants may have providers of
	// their own.
	maxKnown      = 32
	maxKnownBytes = 16 << 10
)

// Known keeps what settings are on the wire across conversations, since many have the same agent. Its methods may be
// called from any goroutine.
type Known struct{ cache *lru.Cache[string, []byte] }

// NewKnown returns an empty one.
func NewKnown() *Known {
	cache, err := lru.New[string, []byte](maxKnown)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &Known{cache}
}

// Get returns what was kept under a key, which says all that the settings depend on.
func (k *Known) Get(key string) ([]byte, bool) { return k.cache.Get(key) }

// Keep keeps settings, which are not changed any more, unless they and the key are too long together.
func (k *Known) Keep(key string, settings []byte) {
	if len(key)+len(settings) <= maxKnownBytes {
		k.cache.Add(key, settings)
	}
}
