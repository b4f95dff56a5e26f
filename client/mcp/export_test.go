package mcp

import "time"

// Name shows plainName and the names of one Build to tests.
func Name(server, tool string) string { return plainName(server, "_", tool) }

// Names gives names as one Build does.
func Names() func(server, tool string) string {
	n := names{}
	return func(server, tool string) string { return n.give(server, "_", tool) }
}

// Quick has a Build take short times.
func Quick(start, call, retry, kill time.Duration) Option {
	return func(b *builder) {
		b.times.start, b.times.call, b.times.retry, b.times.kill = start, call, retry, kill
		b.times.retryMax = 4 * retry
	}
}
