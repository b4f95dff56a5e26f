package render

import (
	"context"
)

const (
	// valueWeight is about what one value of a state takes in a message.
	valueWeight = 100
	// textWeight is how often a text is in memory while it is rendered and sent: in
	// its record, in a message, of a state in two forms, and in the bytes that go out.
	textWeight = 6
)

// TextWeight returns about how many bytes of memory it takes to render and send a text.
func TextWeight(bytes int) int64 { return textWeight * int64(bytes) }

// StateWeight returns about how many bytes of memory it takes to render and send a state.
func StateWeight(v any) int64 {
	switch v := v.(type) {
	case map[string]any:
		n := int64(valueWeight)
		for k, v := range v {
			n += TextWeight(len(k)) + StateWeight(v)
		}
		return n
	case []any:
		n := int64(valueWeight)
		for _, v := range v {
			n += StateWeight(v)
		}
		return n
	case string:
		return valueWeight + TextWeight(len(v))
	default:
		return valueWeight
	}
}

// LogBytes returns about the size of the records up to one that CatchUp renders at once.
func (r *Reader) LogBytes(ctx context.Context, upTo int64) int {
	size, _ := r.size(ctx, upTo) // CatchUp returns the error
	return size
}
