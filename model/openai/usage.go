package openai

import (
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// chatUsage is the usage of chat completions.
type chatUsage struct {
	Prompt     wire.Tokens `json:"prompt_tokens"`
	Completion wire.Tokens `json:"completion_tokens"`
	Total      wire.Tokens `json:"total_tokens"`
	CacheHit   wire.Tokens `json:"prompt_cache_hit_tokens"` // DeepSeek
	PromptMore struct {
		Cached  wire.Tokens `json:"cached_tokens"`
		Written wire.Tokens `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionMore struct {
		Reasoning wire.Tokens `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// model is the usage in our terms.
func (u *chatUsage) model() model.Usage {
	cached := max(u.PromptMore.Cached, u.CacheHit)
	return reported{u.Prompt, u.Completion, cached, u.PromptMore.Written, u.CompletionMore.Reasoning, u.Total}.usage()
}

// reported is what a server says of a response, on either wire.
type reported struct{ prompt, completion, cached, written, thoughts, total wire.Tokens }

// usage is r in our terms. Some servers count beside the others what OpenAI counts as
// a part: xAI's the thoughts, proxies of Anthropic what was cached. Their total says
// so. What it holds besides is output that is not shown, such as the thoughts that
// Google's server counts there alone.
func (r reported) usage() model.Usage {
	switch apart := r.total - r.prompt - r.completion; {
	case apart <= 0:
	case apart == r.cached, apart == r.cached+r.written:
		r.prompt += apart
	default:
		r.completion += apart
	}
	return model.Usage{
		Prompt: int64(r.prompt), Completion: int64(r.completion),
		Cached: int64(r.cached), CacheWrite: int64(r.written), Thoughts: int64(r.thoughts),
	}.Normal()
}
