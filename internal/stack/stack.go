// Package stack makes room on a goroutine's stack before it is needed. It is a part of agentd, not an API, and imports
// the standard library alone.
package stack

import "runtime"

// Grow makes room for what needs about 12 KB, while there is next to nothing on the stack: else it grows in several
// steps, each of which moves all frames that are there by then.
//
//go:noinline
func Grow() byte {
	var frame [12 << 10]byte
	return frame[runtime.NumCPU()&1]
}
