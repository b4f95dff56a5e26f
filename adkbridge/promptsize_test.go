package adkbridge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/session/record"
)

var mark = regexp.MustCompile(`#\d+#`)

// randomHistory draws events of several agents on several branches, each with its own
// mark, and summaries of what one of them saw.
type randomHistory struct {
	t       *rapid.T
	h       *history
	seq     int64
	calls   int
	open    []*genai.FunctionCall
	authors []promptKey

	summaries int
}

var (
	drawnAgents   = []string{"a", "b", "c"}
	drawnBranches = []string{"", "p.a", "p.b", "p.b.q.c"}
)

func (r *randomHistory) key() promptKey {
	return promptKey{rapid.SampledFrom(drawnAgents).Draw(r.t, "agent"), rapid.SampledFrom(drawnBranches).Draw(r.t, "branch")}
}

// calling reports whether an agent has open calls; its model is called after them.
func (r *randomHistory) calling(agent string) bool {
	return slices.ContainsFunc(r.authors, func(k promptKey) bool { return k.agent == agent })
}

// event adds an event.
func (r *randomHistory) event() {
	r.seq++
	text := fmt.Sprintf("#%d# %s", r.seq, strings.Repeat("x", rapid.IntRange(0, 400).Draw(r.t, "size")))
	it := &item{seq: r.seq}
	key := r.key()
	it.author, it.branch = key.agent, key.branch
	switch kind := rapid.IntRange(0, 5).Draw(r.t, "kind"); {
	case kind == 0:
		it.author, it.branch, it.content = user, "", genai.NewContentFromText(text, genai.RoleUser)
	case kind == 1 || kind == 2 && len(r.open) == 0:
		it.content, it.response = genai.NewContentFromText(text, genai.RoleModel), true
		it.context = rapid.Int64Range(0, 1000).Draw(r.t, "counted")
	case kind == 2: // all calls of one agent get their results
		key = r.authors[0]
		it.author, it.branch, it.content = key.agent, key.branch, &genai.Content{Role: genai.RoleUser}
		for i := range slices.Backward(r.open) {
			if r.authors[i] == key {
				it.content.Parts = append(it.content.Parts, responsePart(r.open[i], map[string]any{"m": text}))
				r.open, r.authors = slices.Delete(r.open, i, i+1), slices.Delete(r.authors, i, i+1)
				text = ""
			}
		}
	default:
		it.content, it.response = &genai.Content{Role: genai.RoleModel}, true
		for range rapid.IntRange(1, 3).Draw(r.t, "calls") {
			r.calls++
			call := &genai.FunctionCall{ID: fmt.Sprint("call_", r.calls), Name: "t", Args: map[string]any{"m": text}}
			r.open, r.authors = append(r.open, call), append(r.authors, key)
			it.content.Parts = append(it.content.Parts, &genai.Part{FunctionCall: call})
			text = ""
		}
	}
	r.h.add(it, 1)
}

// summarise compacts what an agent sees, and checks that nothing is lost, repeated, or
// changed for others.
func (r *randomHistory) summarise() {
	key := r.key()
	if r.calling(key.agent) {
		return
	}
	before := map[promptKey]string{}
	for _, agent := range drawnAgents {
		for _, branch := range drawnBranches {
			if k := (promptKey{agent, branch}); k != key && !r.calling(agent) {
				before[k] = transcript(r.h.prompt(agent, branch, 0))
			}
		}
	}
	o := r.h.outline(key, 0, rapid.Int64Range(1, r.seq).Draw(r.t, "turn"))
	s, ok := o.choose(rapid.IntRange(0, 4000).Draw(r.t, "keep"), rapid.Bool().Draw(r.t, "overflow"))
	if !ok {
		return
	}
	if s.n < len(o.contents) && len(calls(o.contents[s.n-1])) > 0 {
		r.t.Fatalf("a call is parted from its result at %d of\n%s", s.n, transcript(o.contents))
	}
	r.seq++
	r.h.add(&item{
		seq: r.seq, author: key.agent, branch: key.branch, content: &genai.Content{Role: genai.RoleModel},
		compacted: &record.Compacted{Summary: fmt.Sprintf("summary %d", r.seq), Through: s.seq}, span: span{Kept: s.kept},
	}, 1)
	r.summaries++
	after := r.h.prompt(key.agent, key.branch, 0)
	checkValid(r.t, after)
	if first := after[0].Parts[0].Text; !strings.Contains(first, fmt.Sprintf("summary %d\n", r.seq)) {
		r.t.Fatalf("the prompt begins with %q", first)
	}
	want := mark.FindAllString(transcript(o.contents[s.n:]), -1)
	for _, seq := range s.kept {
		want = append(want, fmt.Sprintf("#%d#", seq))
	}
	got := mark.FindAllString(transcript(after), -1)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(slices.Compact(got)) != len(want) {
		r.t.Fatalf("told %v beside the summary, want %v", got, want)
	}
	for _, m := range mark.FindAllString(transcript(o.contents[:s.n]), -1) {
		var seq int64
		if _, err := fmt.Sscanf(m, "#%d#", &seq); err != nil || seq > s.seq {
			r.t.Fatalf("%s is summarised, the summary ends at %d (%v)", m, s.seq, err)
		}
	}
	for k, text := range before {
		if got := transcript(r.h.prompt(k.agent, k.branch, 0)); got != text {
			r.t.Fatalf("a summary of %v has changed the prompt of %v:\n%s\nbefore:\n%s", key, k, got, text)
		}
	}
}

// TestCompactionProperties compacts random histories: every prompt is valid, a summary
// and the rest cover everything once, no call is parted from its result, and a history
// that is read from the log yields the same prompts and measures as one that was kept
// in memory.
func TestCompactionProperties(t *testing.T) {
	summaries, compared := 0, 0
	defer func() {
		if summaries == 0 || compared == 0 {
			t.Errorf("%d summaries, %d prompts compared", summaries, compared)
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		r := &randomHistory{t: t, h: newHistory()}
		defer func() { summaries += r.summaries }()
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			r.event()
			if rapid.IntRange(0, 3).Draw(t, "compact") == 0 {
				r.summarise()
			}
		}
		for n := range r.h.items {
			if rapid.IntRange(0, 9).Draw(t, "prefix") > 0 && n+1 < len(r.h.items) {
				continue
			}
			live, read := newHistory(), newHistory()
			open := map[string]int{} // calls by agent
			for _, it := range r.h.items[:n+1] {
				live.add(it, 1)
				open[it.author] += len(calls(it.content)) - len(responses(it.content))
				for _, agent := range drawnAgents {
					if open[agent] == 0 {
						live.outline(promptKey{agent, ""}, 0, 1)
					}
				}
			}
			for _, i := range rapid.Permutation(slices.Clone(r.h.items[:n+1])).Draw(t, "order") {
				read.add(i, 1)
			}
			for _, agent := range drawnAgents {
				a, b := live.outline(promptKey{agent, ""}, 0, 1), read.outline(promptKey{agent, ""}, 0, 1)
				text := transcript(a.contents)
				if strings.Contains(text, "interrupted") {
					continue // closing the history decides when it happens
				}
				compared++
				if text != transcript(b.contents) {
					t.Fatalf("%s, %d events: live\n%s\nread\n%s", agent, n+1, text, transcript(b.contents))
				}
				if a.context != b.context || a.bytes != b.bytes || a.fresh != b.fresh || !slices.Equal(a.points, b.points) {
					t.Fatalf("%s, %d events: live %+v, read %+v", agent, n+1, a.measures, b.measures)
				}
			}
		}
	})
}

func TestChoose(t *testing.T) {
	said := func(seq int64, n int) *item {
		return &item{seq: seq, author: user, content: genai.NewContentFromText(strings.Repeat("u", n), genai.RoleUser)}
	}
	toolResult := func(seq int64, n int) *item {
		return &item{seq: seq, author: "a", response: true, content: genai.NewContentFromText(strings.Repeat("m", n), genai.RoleModel)}
	}
	round := func(seq int64, n int) []*item {
		c := &genai.FunctionCall{ID: fmt.Sprint(seq), Name: "t", Args: map[string]any{}}
		return []*item{
			{seq: seq, author: "a", response: true, content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{{FunctionCall: c}}}},
			{seq: seq + 1, author: "a", content: &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{responsePart(c, map[string]any{"output": strings.Repeat("r", n)})}}},
		}
	}
	talk := []*item{said(1, 1000), toolResult(2, 1000), said(3, 1000), toolResult(4, 1000), said(5, 1000)}
	rounds := slices.Concat([]*item{said(1, 1000), toolResult(2, 1000), said(3, 100)}, round(4, 1000), round(6, 1000), round(8, 1000))
	for name, tc := range map[string]struct {
		items   []*item
		start   int64
		keep    int
		all     bool
		through int64 // 0: nothing is to be compacted
		kept    string
	}{
		"between turns":             {talk, 5, 3500, false, 2, "[]"},
		"rather than before answer": {talk, 5, 4500, false, 2, "[]"},
		"the prompt stays":          {talk, 5, 10, false, 4, "[]"},
		"within the turn":           {rounds, 3, 1500, false, 7, "[3]"},
		"the newest round stays":    {rounds, 3, 10, false, 7, "[3]"},
		"unless it was refused":     {rounds, 3, 10, true, 9, "[3]"},
		"a prompt alone":            {talk[:1], 1, 10, true, 0, "[]"},
		"too little to gain":        {slices.Concat([]*item{said(1, 10), toolResult(2, 10)}, talk[2:]), 5, 3100, false, 0, "[]"},
		"nothing":                   {nil, 1, 10, true, 0, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			for _, it := range tc.items {
				h.add(it, 1)
			}
			s, ok := h.outline(promptKey{"a", ""}, 0, tc.start).choose(tc.keep, tc.all)
			if !ok {
				s = section{}
			}
			if s.seq != tc.through || fmt.Sprint(s.kept) != tc.kept {
				t.Errorf("through %d, kept %v; want %d, %s", s.seq, s.kept, tc.through, tc.kept)
			}
		})
	}
}

// TestConversation shortens the text for a summary, the longest passages first, and
// never exceeds the limit.
func TestConversation(t *testing.T) {
	c := &genai.FunctionCall{ID: "1", Name: "read", Args: map[string]any{"path": "x"}}
	result := responsePart(c, map[string]any{"output": "BEGIN" + strings.Repeat("ü", 5000) + "END"})
	result.FunctionResponse.Parts = []*genai.FunctionResponsePart{{FileData: &genai.FunctionResponseFileData{MIMEType: "image/jpeg", FileURI: "https://x.test/y"}}}
	contents := []*genai.Content{
		{Role: genai.RoleUser, Parts: []*genai.Part{{Text: "read it"}, {InlineData: &genai.Blob{MIMEType: "image/png"}}}},
		{Role: genai.RoleModel, Parts: []*genai.Part{{Text: "secret", Thought: true}, {Text: "I do."}, {FunctionCall: c}}},
		{Role: genai.RoleUser, Parts: []*genai.Part{result}},
		genai.NewContentFromText("done", genai.RoleModel),
	}
	got := conversation(contents, 1000)
	for _, want := range []string{"[user]\nread it\n", "(attached: image/png)", "[agent]\nI do.\n", "[agent calls read]\n{\"path\":\"x\"}", "[result of read]\n{\"output\":\"BEGIN", "bytes are left out", "END\"}", "(attached: image/jpeg https://x.test/y)", "[agent]\ndone"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "secret") || len(got) < 800 || len(got) > 1000 {
		t.Errorf("%d bytes:\n%s", len(got), got)
	}
	rapid.Check(t, func(t *rapid.T) {
		var contents []*genai.Content
		for range rapid.IntRange(0, 20).Draw(t, "contents") {
			contents = append(contents, genai.NewContentFromText(strings.Repeat("é", rapid.IntRange(1, 3000).Draw(t, "length")), genai.RoleUser))
		}
		limit := rapid.IntRange(0, 20000).Draw(t, "limit")
		if n := len(conversation(contents, limit)); n > limit+64 {
			t.Fatalf("%d bytes, the limit is %d", n, limit)
		}
	})
}
