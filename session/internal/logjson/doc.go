// Package logjson is the JSON of a session's log: without HTML escapes, with every number as
// it was written, and with valid UTF-8 alone.
package logjson
