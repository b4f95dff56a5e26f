package keytext

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHide(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "agentd keys create": "agentd keys create", "agentd_key_": "agentd_key_", "agentd_key_… is wanted": "agentd_key_… is wanted",
		"revoke agentd_key_abcdefghijkl":                 "revoke agentd_key_abcdefghijkl",
		`no "agentd_key_abcdefghijkl_SECRET", no`:        `no "agentd_key_abcdefghijkl_***", no`,
		"agentd_key_a_B agentd_token_c_D agentd_key_e_F": "agentd_key_a_*** agentd_token_c_*** agentd_key_e_***",
		"agentd_token_abcdefghijklSECRETSECRET.":         "agentd_token_***.",
		"agentd_key_agentd_key_a_SECRET":                 "agentd_key_agentd_***",
		"xagentd_key_a_b_c_d-e":                          "xagentd_key_a_***-e",
	} {
		if got := Hide(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The secret of a key is hidden wherever it stands, and what is hidden stays as it is.
func TestHideAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[a-z _"\\.]{0,10}|agentd_key_|agentd_token_[a-z]{3}_`)
		secret := rapid.StringMatching(`[A-Z2-7]{26}`).Draw(t, "secret")
		begin := rapid.SampledFrom(begins).Draw(t, "begin")
		text := part.Draw(t, "before") + begin + "abcdefghijkl_" + secret + part.Draw(t, "after")
		got := Hide(text)
		if strings.Contains(got, secret) || Hide(got) != got {
			t.Fatalf("%q becomes %q, then %q", text, got, Hide(got))
		}
	})
}
