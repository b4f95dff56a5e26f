package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/session/record"
)

// downModel is a model that is never there.
const downModel = "gpt-down"

// bill is what downModel took for a step, or for a summary, whose step is zero.
type bill struct {
	made
	step   step
	prompt int64 // unique
}

// charge has downModel fail, at a price. The caller holds mu.
func (p *provider) charge(session int, s step, by made) error {
	prompt := int64(1_000_000 + len(p.bills[session]))
	p.bills[session] = append(p.bills[session], bill{by, s, prompt})
	return downError(prompt)
}

// downError is how downModel fails: after it has said what that took.
type downError int64

// Error implements error.
func (e downError) Error() string {
	const event = "data: %s\n\n"
	return fmt.Sprintf(event, fmt.Sprintf(`{"id":"x","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":0,"total_tokens":%d}}`, e, e)) +
		fmt.Sprintf(event, `{"error":{"message":"closed for repairs","code":"model_not_found"}}`)
}

// sum is a summary that the provider was asked for.
type sum struct {
	attempt
	text string
}

// content is what a message says, and how many pictures are with it.
type content struct {
	text     string
	pictures int
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return json.Unmarshal(data, &c.text)
	}
	var parts []struct {
		Text  string
		Image *struct{ URL string } `json:"image_url"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		c.text += p.Text + "\n"
		if p.Image != nil && strings.HasPrefix(p.Image.URL, "data:image/png;base64,") {
			c.pictures++
		}
	}
	return nil
}

// picture is a file that belongs to a prompt or to a call.
func picture(key string) []byte { return []byte("\x89PNG\r\n\x1a\n" + key) }

// pictured is what has a picture behind it.
var pictured = regexp.MustCompile(`turn \d+ of session \d+|result of \d+\.\d+\.\w+\.\d+\.\d+`)

// checkPictures says whether each prompt and each result has its picture.
func checkPictures(req *chatRequest, files bool) error {
	want, got := 0, 0
	for _, m := range req.Messages {
		want += len(pictured.FindAllString(m.Content.text, -1))
		got += m.Content.pictures
	}
	if !files {
		want = 0
	}
	if got != want {
		return fmt.Errorf("%d pictures are told, want %d", got, want)
	}
	return nil
}

var summaryMark = regexp.MustCompile(`chaos summary session=(\d+) agent=(\w+);`)

// summaryOf tells whether a request is for a summary, and of what.
func summaryOf(req *chatRequest) (session int, agent string, ok bool) {
	if len(req.Messages) == 0 {
		return 0, "", false
	}
	m := summaryMark.FindStringSubmatch(req.Messages[0].Content.text)
	if m == nil {
		return 0, "", false
	}
	session, _ = strconv.Atoi(m[1]) // digits
	return session, m[2], true
}

// summarise takes in a request for a summary. It says how far the agent has come:
// the next step follows from that.
func (p *provider) summarise(session int, agent string, by made, body []byte, req *chatRequest) (*attempt, answer, error) {
	newest := step{}
	for _, m := range req.Messages {
		for _, m := range stepMark.FindAllStringSubmatch(m.Content.text, -1) {
			if s := stepOf(m); s.session == session && s.agent == agent && compareSteps(s, newest) > 0 {
				newest = s
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.Model == downModel {
		return nil, answer{}, p.charge(session, step{}, by)
	}
	h := fnv.New64a()
	_, _ = h.Write(body)
	s := &sum{attempt: attempt{made: by, number: len(p.sums[session]) + 1, digest: h.Sum64(), prompt: int64(len(body) / 4)}}
	s.text = fmt.Sprintf("summary %03d %s", s.number, newest)
	p.sums[session] = append(p.sums[session], s)
	return &s.attempt, answer{text: s.text, prompt: s.prompt, completion: 9}, nil
}

func (p *provider) sumsOf(session int) []sum {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []sum
	for _, s := range p.sums[session] {
		out = append(out, *s)
	}
	return out
}

func (p *provider) billsOf(session int) []bill {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.bills[session])
}

func (p *provider) downsOf(session int) map[step][]made {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[step][]made{}
	for s, by := range p.downs {
		if s.session == session {
			out[s] = slices.Clone(by)
		}
	}
	return out
}

// does checks that a session has what its shape is for.
func (e *told) does(t *testing.T) {
	t.Helper()
	l, windows := readLog(e.records), 0
	for _, p := range e.shape.root.all() {
		if p.window > 0 {
			windows++
		}
	}
	if windows > 0 && len(l.sums) < 3 {
		t.Errorf("%d summaries of %d agents", len(l.sums), windows)
	}
	if e.shape.raw && len(l.raws) < len(l.answers) {
		t.Errorf("%d raw payloads of %d answers", len(l.raws), len(l.answers))
	}
}

// all are the agents of a tree.
func (p *plan) all() []*plan {
	out := []*plan{p}
	for _, kid := range slices.Concat(p.kids, p.calls) {
		out = append(out, kid.all()...)
	}
	return out
}

// costSeen checks what a model call is said to have taken.
func (x *examine) costSeen(c *chain, m seen) {
	if want := x.log.costs[m.seq>>recordBits]; m.text != want {
		x.v.lostf("%s was told at %d that a call took %q, the log has %q", c.who, m.seq, m.text, want)
	}
}

// models checks what is recorded of model calls besides their answers.
func (x *examine) models() {
	x.fallbacks()
	x.billed()
	x.payloads()
	for _, s := range x.log.sums {
		x.summary(s, s.fact.Compacted.Summary, s.fact.Usage.Prompt)
	}
}

// fallbacks checks that each change of the model is told once per process, before
// the answer, and that nobody asks a model for an answer that is there.
func (x *examine) fallbacks() {
	fell := map[string]int{}
	for _, f := range x.log.falls {
		id := f.fact.MessageID
		if f.fact.Model != downModel || f.fact.Next != "gpt-chaos" {
			x.v.otherf("record %d: %+v", f.seq, f.fact)
		}
		if id == "" {
			continue // of a summary
		}
		if a := x.log.answers[id]; a != nil && a.seq < f.seq {
			x.v.rerunf("record %d: another model is called for %s, which record %d has", f.seq, id, a.seq)
		}
		if fell[id]++; fell[id] > 1+f.turn.resumed {
			x.v.repeatedf("record %d: the model of %s changes %d times, its turn was resumed %d times", f.seq, id, fell[id], f.turn.resumed)
		}
	}
	for id, a := range x.log.answers {
		p := x.shape.root.find(a.agent)
		if p == nil {
			continue // is reported
		}
		if p.falls != (fell[id] > 0) {
			x.v.lostf("record %d: the model of %s has changed %d times", a.seq, id, fell[id])
		}
		m := attemptMark.FindStringSubmatch(a.text)
		for _, by := range x.downs[a.step] {
			i := slices.IndexFunc(x.attempts[a.step], func(t attempt) bool { return len(m) > 1 && strconv.Itoa(t.number) == m[1] })
			if i >= 0 && x.afterwards(by, x.attempts[a.step][i].made, a.seq) {
				x.rerunf(by, "step %s: process %d asked for it, its answer is of process %d", a.step, by.epoch, x.attempts[a.step][i].epoch)
			}
		}
	}
}

// billed checks that the log has what a model took that has failed, once; and all of
// it where its process went on.
func (x *examine) billed() {
	had := map[int64]int{}
	for _, f := range x.log.falls {
		u := f.fact.Usage
		i := -1
		if u != nil {
			i = slices.IndexFunc(x.bills, func(b bill) bool { return b.prompt == u.Prompt })
		}
		switch {
		case i < 0 || u.Calls != 1 || u.Total != u.Prompt:
			x.v.lostf("record %d: a model has failed and took %+v, which its provider did not say", f.seq, u)
		case had[u.Prompt] > 0:
			x.v.repeatedf("record %d: a model has failed and took %+v, as before", f.seq, u)
		default:
			had[u.Prompt]++
		}
	}
	for _, a := range x.log.answers {
		m := attemptMark.FindStringSubmatch(a.text)
		for _, b := range x.bills {
			i := slices.IndexFunc(x.attempts[a.step], func(t attempt) bool { return len(m) > 1 && strconv.Itoa(t.number) == m[1] })
			if b.step == a.step && i >= 0 && x.undisturbed(b.made, x.attempts[a.step][i].made, a.turn) && had[b.prompt] == 0 {
				x.v.lostf("record %d: the model that has failed before took %d tokens, the log does not have them", a.seq, b.prompt)
			}
		}
	}
}

// payloads checks that the last thing that came over the wire for an answer is that
// answer, and that it is recorded before.
func (x *examine) payloads() {
	if !x.shape.raw && len(x.log.raws) > 0 {
		x.v.otherf("%d raw payloads, nobody has asked for them", len(x.log.raws))
	}
	last := map[string]int{}
	for i, r := range x.log.raws {
		id := r.fact.MessageID
		if a := x.log.answers[id]; a != nil && a.seq < r.seq {
			x.v.rerunf("record %d: a raw payload of %s, which record %d has", r.seq, id, a.seq)
		}
		last[id] = i + 1
	}
	for id, a := range x.log.answers {
		if !x.shape.raw {
			continue
		}
		i := last[id]
		if i == 0 {
			x.v.lostf("record %d: no raw payload of %s", a.seq, id)
			continue
		}
		r, word := x.log.raws[i-1].fact, regexp.MustCompile(`w0:\d+`).FindString(a.text)
		if r.Status != 200 || r.Truncated || !bytes.Contains(r.Body, []byte(`"`+word+` "`)) || !bytes.Contains(r.Body, []byte("[DONE]")) {
			x.v.lostf("record %d: the raw payload of %s before it is %+v", a.seq, id, r)
		}
	}
}

// summary holds a recorded summary against what the provider has said, and finds
// those that were made again.
func (x *examine) summary(f loggedFact[*record.Event], text string, prompt int64) {
	seq := f.seq
	i := slices.IndexFunc(x.sums, func(s sum) bool { return s.text == text })
	if i < 0 {
		x.v.lostf("record %d: the summary %q, for which the provider was not asked", seq, text)
		return
	}
	this := x.sums[i]
	if this.prompt != prompt {
		x.v.lostf("record %d: the summary took %d tokens, the provider said %d", seq, prompt, this.prompt)
	}
	for _, other := range x.sums {
		if other.digest != this.digest || other.number == this.number {
			continue
		}
		if x.afterwards(other.made, this.made, seq) ||
			x.undisturbed(other.made, this.made, f.turn) && (other.number > this.number || other.fault == "") {
			x.rerunf(other.made, "record %d: the summary %q of process %d was made again: %q of process %d", seq, text, this.epoch, other.text, other.epoch)
		}
	}
}

// changes edits the records of models that have failed.
func (e *evidence) changes(t *testing.T, edit func(*record.ModelFallback)) {
	t.Helper()
	for i, rec := range e.records {
		if rec.Kind != record.KindModelFallback {
			continue
		}
		var f record.ModelFallback
		err := json.Unmarshal(rec.Data, &f)
		if edit(&f); err == nil {
			e.records[i].Data, err = json.Marshal(f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What is wrong with model calls is seen.
func TestModelsChecker(t *testing.T) {
	p := newProvider(t, false)
	evidenceOf := func(name string) evidence {
		i := slices.IndexFunc(shapes(), func(s shape) bool { return s.name == name })
		return (&point{p: p, shape: shapes()[i]}).run(t).evidence
	}
	fallback, compaction := evidenceOf("fallback"), evidenceOf("compaction")
	for name, tc := range map[string]struct {
		whole  evidence
		count  func(verdict) int
		mutate func(*testing.T, *evidence)
	}{
		"a model that was replaced is asked again": {fallback, func(v verdict) int { return v.rerun }, func(_ *testing.T, e *evidence) {
			e.downs = map[step][]made{}
			for _, a := range readLog(e.records).answers {
				e.downs[a.step] = []made{{epoch: 7}}
			}
		}},
		"what a model took that failed is not there": {fallback, func(v verdict) int { return v.lost }, func(t *testing.T, e *evidence) { e.changes(t, func(f *record.ModelFallback) { f.Usage = nil }) }},
		"what a model took that failed is another":   {fallback, func(v verdict) int { return v.lost }, func(t *testing.T, e *evidence) { e.changes(t, func(f *record.ModelFallback) { f.Usage.Prompt++ }) }},
		"a model that failed is paid twice": {fallback, func(v verdict) int { return v.repeated }, func(t *testing.T, e *evidence) {
			e.changes(t, func(f *record.ModelFallback) { f.Usage.Prompt, f.Usage.Total = 1_000_000, 1_000_000 })
		}},
		"a raw payload is another": {fallback, func(v verdict) int { return v.lost }, func(_ *testing.T, e *evidence) {
			for i, rec := range e.records {
				var raw record.RawPayload
				if rec.Kind == record.KindRawPayload && json.Unmarshal(rec.Data, &raw) == nil && raw.Status == 200 {
					raw.Body = bytes.ReplaceAll(raw.Body, []byte("w0:"), []byte("w0;"))
					e.records[i].Data, _ = json.Marshal(raw)
				}
			}
		}},
		"nobody has asked for raw payloads": {fallback, func(v verdict) int { return v.other }, func(_ *testing.T, e *evidence) { e.shape.raw = false }},
		"a call is said to have taken more": {fallback, func(v verdict) int { return v.lost }, func(t *testing.T, e *evidence) {
			c, i := e.on(t, "driver's stream", sawCost, 0)
			c.msgs[i].text += "0"
		}},
		"a summary is written again": {compaction, func(v verdict) int { return v.rerun }, func(_ *testing.T, e *evidence) {
			again := e.sums[0]
			again.number, again.epoch, again.text = 99, again.epoch+1, "summary 099"
			e.sums = append(slices.Clone(e.sums), again)
		}},
		"a summary is another": {compaction, func(v verdict) int { return v.lost }, func(_ *testing.T, e *evidence) {
			e.sums = slices.Clone(e.sums)
			e.sums[0].text += "?"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := tc.whole.clone()
			if v := e.check(); v.bad() || v.facts == 0 {
				t.Fatalf("before the fault: %+v", v)
			}
			tc.mutate(t, &e)
			if v := e.check(); tc.count(v) == 0 {
				t.Errorf("the fault is not seen: %+v", v)
			}
		})
	}
}
