package wire

import "testing"

// TestAccount: a mark is short, and one of the endpoint and the key together.
func TestAccount(t *testing.T) {
	const key = "sk-0123456789abcdef"
	mark := Account("https://a.example/v1", key)
	if len(mark) != 2*accountBytes || mark != Account("https://a.example/v1", key) {
		t.Errorf("the mark is %q, want %d digits that stay", mark, 2*accountBytes)
	}
	for _, other := range []string{
		Account("https://a.example/v1", key+"0"), Account("https://b.example/v1", key),
		Account("https://a.example/v1"+key, ""), Account("https://a.example", "/v1"+key),
	} {
		if other == mark {
			t.Errorf("another account has the mark %q too", mark)
		}
	}
}
