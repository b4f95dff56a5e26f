package agentfile

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/internal/yamlfile"
)

// maxJSON bounds the text of a schema; servers take half of it.
const maxJSON = 64 << 10

// jsonText renders a value as JSON, keys in their order.
func jsonText(b *strings.Builder, n *yamlfile.Node) error {
	if b.Len()+len(n.Text) > maxJSON {
		return fmt.Errorf("more than %d bytes of JSON", maxJSON)
	}
	switch n.Kind {
	case yamlfile.Mapping:
		b.WriteByte('{')
		for i, p := range n.Pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, p.Key)
			b.WriteByte(':')
			if err := jsonText(b, p.Value); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case yamlfile.List:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := jsonText(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case yamlfile.Text:
		quote(b, n.Text)
	case yamlfile.Number:
		if !yamlfile.JSONNumber(n.Text) {
			return fmt.Errorf("%s is no number that JSON has", n.Text)
		}
		b.WriteString(n.Text)
	case yamlfile.Bool:
		b.WriteString(n.Text)
	case yamlfile.Null:
		b.WriteString("null")
	}
	return nil
}

func quote(b *strings.Builder, s string) {
	text, _ := json.Marshal(s) // a text is always encoded
	b.Write(text)
}
