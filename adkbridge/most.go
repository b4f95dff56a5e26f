package adkbridge

import (
	"encoding/json"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/record"
)

// What is reserved of a tenant's budget before a model call begins: at least what its text and its response take, since
// no tokenizer makes more than one token of a byte, and about what its media take.
const (
	// longestUnknown is how long the response of a model may be whose longest response is not known.
	longestUnknown = 64 << 10
	// mostPicture, and mostFile, are the tokens of a picture, and of a file that the provider has.
	mostPicture, mostFile = 5_000, 100_000
	// mediaPerToken is about how many bytes of sound and video are a token: providers count their length.
	mediaPerToken = 32
)

// most returns what a call of one of these models can take at most.
func most(contents []*genai.Content, config *genai.GenerateContentConfig, models []*node) record.Spent {
	prompt := int64(len(adapter.Text(config.SystemInstruction)))
	for _, c := range contents {
		prompt += int64(weighWith(c, mostMedia, mostFile))
	}
	for _, v := range []any{config.Tools, config.ResponseJsonSchema, config.ResponseSchema} {
		if text, err := json.Marshal(v); err == nil {
			prompt += int64(len(text))
		}
	}
	var out record.Spent
	for _, n := range models {
		one := n.most(prompt, int64(config.MaxOutputTokens))
		out.Tokens, out.Cost = max(out.Tokens, one.Tokens), max(out.Cost, one.Cost)
	}
	return out
}

// most returns what a call with a prompt and a response of so many tokens can take; a response of 0 has no bound of its
// own. The price of the prompt is the highest that a provider may ask: that of a part that it keeps.
func (n *node) most(prompt, response int64) record.Spent {
	longest := n.model.Longest
	if longest == 0 {
		longest = longestUnknown
	}
	if response > 0 {
		longest = response
	}
	out := record.Spent{Tokens: prompt + longest}
	if n.model.Cost != nil {
		u := model.Usage{Prompt: prompt, Completion: longest, Total: prompt + longest}
		kept := u
		kept.CacheWrite = prompt
		out.Cost = max(n.model.Cost(u), n.model.Cost(kept))
	}
	return out
}

// mostMedia returns the tokens of inline data.
func mostMedia(mime string, size int) int {
	switch {
	case strings.HasPrefix(mime, "image/"):
		return mostPicture
	case strings.HasPrefix(mime, "audio/"), strings.HasPrefix(mime, "video/"):
		return max(mostPicture, size/mediaPerToken)
	default:
		return max(mostPicture, size) // a document may be text alone
	}
}
