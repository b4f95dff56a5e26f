// Package page cuts lists into pages: what a page may hold, and the token with which the next one is
// asked for.
//
// It knows nothing of what is listed.
package page

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"time"

	"github.com/apzuk3/agentd/session/fault"
)

// Bytes is how much the entries of one page take, about, unless one alone is
// larger: a page becomes one message, of which clients take 4 MiB.
const Bytes = 2 << 20

// Full reports whether a page of n entries that take bytes has no room for one more
// that takes next.
func Full(n, limit, bytes, next int) bool {
	return n == limit || n > 0 && bytes+next > Bytes
}

// Token is what a page of a list ends with. It is of no use for another list.
type Token struct {
	Query   uint64 `json:"q"`
	Created int64  `json:"t"` // microseconds since 1970
	Session string `json:"s"`
	Seq     int64  `json:"n,omitempty"`
	ID      string `json:"i,omitempty"`
}

// Hash identifies a list by its query. q must not hold a position.
func Hash(q any) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(q) // a hash takes anything, and q is made of plain values
	return h.Sum64()
}

func (t Token) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		return "" // not reached: t is made of plain values
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// Read reads what String has written for the same query; nil for "".
func Read(text string, query uint64) (*Token, error) {
	if text == "" {
		return nil, nil
	}
	t := &Token{}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, t)
	}
	if err != nil || t.Query != query {
		return nil, fault.Errorf(fault.Invalid, "page_token is none that a list of the same request has given").
			Breaking("page_token", fault.RuleFormat)
	}
	return t, nil
}

// Time is Created.
func (t *Token) Time() time.Time { return time.UnixMicro(t.Created).UTC() }
