package wire

import (
	"encoding/json"
	"strconv"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model/adapter"
)

// ArgsText returns the arguments of a call in history for wires that carry them
// as text: the model's own text when it is any JSON value, else as
// adapter.ArgsText says.
func ArgsText(p *genai.Part) string {
	if _, bad := p.PartMetadata[seam.MetaArgsError]; bad {
		if text, ok := p.PartMetadata[seam.MetaArgs].(string); ok && json.Valid([]byte(text)) {
			return text
		}
	}
	return adapter.ArgsText(p)
}

// Float widens f to the number its shortest decimal form means: 0.7, not
// 0.699999988.
func Float(f float32) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	if err != nil {
		return float64(f)
	}
	return v
}
