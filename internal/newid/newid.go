// Package newid makes ids of sessions. Ids that are made one after another are near each other in the order of their
// bytes, so that databases, which keep rows in the order of their keys, write few pages for what runs at the same time.
package newid

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"
)

// timeDigits are the digits of a time in milliseconds since 1970, to the base 32: enough until the year 3084.
const timeDigits = 9

// Session returns an id that nobody has: the time and at least 128 random bits, 35 lower-case letters and digits.
func Session(now time.Time) string {
	at := strconv.FormatInt(max(now.UnixMilli(), 0), 32)
	return strings.Repeat("0", max(timeDigits-len(at), 0)) + at + strings.ToLower(rand.Text())
}
