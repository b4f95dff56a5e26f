package model

import "cmp"

// PromptTokens is how many tokens the prompt of a call had, those that were read
// from a cache included, whatever of them its provider counts as Usage.Prompt; 0
// when it has not said.
func PromptTokens(provider string, u Usage) int64 {
	if !u.valid() {
		return 0
	}
	acc, known := accountings[cmp.Or(families[provider], provider)]
	if known && !acc.cachedInPrompt || u.Cached > u.Prompt {
		return u.Prompt + u.Cached
	}
	return u.Prompt
}
