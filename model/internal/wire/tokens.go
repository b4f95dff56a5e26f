package wire

import (
	"encoding/json"
	"math"
)

// Tokens is a count of tokens in a provider's JSON. What is no number counts as
// none: a response is not lost, and not paid again, for what is said about it.
type Tokens int64

// UnmarshalJSON implements json.Unmarshaler. It takes any JSON.
func (n *Tokens) UnmarshalJSON(data []byte) error {
	var f float64
	if json.Unmarshal(data, &f) != nil {
		f = 0 // no number, or one beyond all bounds
		if len(data) > 0 && data[0] >= '0' && data[0] <= '9' {
			f = math.MaxInt32
		}
	}
	*n = Tokens(min(max(f, 0), math.MaxInt32))
	return nil
}
