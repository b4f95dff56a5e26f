package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// However long a conversation is, a request has at most four marks, and none of
// them changes what is marked: without its marks it begins as the one before did.
func TestCacheMarks(t *testing.T) {
	req := *requests()["conversation"]
	req.Cache = &model.Cache{}
	before := ""
	for n := range 6 {
		whole, err := bodyOf("claude-sonnet-4-5", &req)
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ Messages json.RawMessage }
		if err := json.Unmarshal(whole, &body); err != nil {
			t.Fatal(err)
		}
		data := body.Messages
		const mark = `,"cache_control":{"type":"ephemeral"}`
		if got := strings.Count(string(whole), mark); got < 3 || got > 4 {
			t.Errorf("%d turns more: %d marks in %s", n, got, whole)
		}
		if !strings.HasSuffix(string(data), mark+"}]}]") {
			t.Errorf("%d turns more: the newest message is not marked: %s", n, data)
		}
		now := strings.ReplaceAll(string(data), mark, "")
		if !strings.HasPrefix(now, strings.TrimSuffix(before, "]")) {
			t.Errorf("%d turns more: begins with %s, before it was %s", n, now, before)
		}
		before = now
		req.Contents = append(slices.Clip(req.Contents),
			genai.NewContentFromText(fmt.Sprint("answer ", n), genai.RoleModel), genai.NewContentFromText(fmt.Sprint("prompt ", n), genai.RoleUser))
	}
}
