package adapter

import (
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
)

// Result returns a tool's result as text for the model: the output alone if the response is
// {"output": …} (a string as it is, anything else as JSON), the error alone if it is {"error": …},
// else the response as JSON. An error that is null, false or empty is none.
func Result(fr *genai.FunctionResponse) (text string, isError bool) {
	if len(fr.Response) == 1 {
		if v, ok := fr.Response["output"]; ok {
			return plain(v), false
		}
		switch v := fr.Response["error"]; v {
		case nil, "", false:
		default:
			return plain(v), true
		}
	}
	if fr.Response == nil {
		return "{}", false
	}
	return plain(fr.Response), false
}

// plain returns a string as it is and anything else as JSON.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := rawjson.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}
