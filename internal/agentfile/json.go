package agentfile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// jsonNumber tells whether a text is a number as JSON writes it.
func jsonNumber(s string) bool {
	return s != "" && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && json.Valid([]byte(s))
}

// maxJSON bounds the text of a schema; servers take half of it.
const maxJSON = 64 << 10

// jsonText renders a value as JSON, keys in their order. count is asked before
// each value and may refuse it.
func jsonText(b *strings.Builder, n *node, count func() error) error {
	if err := count(); err != nil {
		return err
	}
	if b.Len()+len(n.text) > maxJSON {
		return fmt.Errorf("more than %d bytes of JSON", maxJSON)
	}
	switch n.kind {
	case mappingKind:
		b.WriteByte('{')
		for i, p := range n.pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, p.key)
			b.WriteByte(':')
			if err := jsonText(b, p.value, count); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case listKind:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := jsonText(b, item, count); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case textKind:
		quote(b, n.text)
	case numberKind:
		if !jsonNumber(n.text) {
			return fmt.Errorf("%s is no number that JSON has", n.text)
		}
		b.WriteString(n.text)
	case boolKind:
		b.WriteString(n.text)
	case nullKind:
		b.WriteString("null")
	}
	return nil
}

func quote(b *strings.Builder, s string) {
	text, _ := json.Marshal(s) // a text is always encoded
	b.Write(text)
}
