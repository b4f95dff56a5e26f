package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// downModel is a model that is never there.
const downModel = "gpt-down"

// errDown says that a request was for it.
var errDown = errors.New("the model is not there")

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
func (p *provider) summarise(session int, agent string, epoch int, body []byte, req *chatRequest) (*attempt, answer, error) {
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
		return nil, answer{}, errDown
	}
	h := fnv.New64a()
	_, _ = h.Write(body)
	s := &sum{attempt: attempt{number: len(p.sums[session]) + 1, epoch: epoch, digest: h.Sum64(), prompt: int64(len(body) / 4)}}
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

func (p *provider) downsOf(session int) map[step][]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[step][]int{}
	for s, epochs := range p.downs {
		if s.session == session {
			out[s] = slices.Clone(epochs)
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
	for _, kid := range p.kids {
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
	x.payloads()
	for _, s := range x.log.sums {
		x.summary(s.seq, s.fact.Compacted.Summary, s.fact.Usage.Prompt)
	}
}

// fallbacks checks that each change of the model is told once per process, before
// the answer, and that nobody asks a model for an answer that is there.
func (x *examine) fallbacks() {
	fell := map[string]int{}
	for _, f := range x.log.falls {
		id := f.fact.MessageID
		if a := x.log.answers[id]; a != nil && a.seq < f.seq {
			x.v.rerunf("record %d: another model is called for %s, which record %d has", f.seq, id, a.seq)
		}
		if fell[id]++; fell[id] > 1+f.turn.resumed {
			x.v.repeatedf("record %d: the model of %s changes %d times, its turn was resumed %d times", f.seq, id, fell[id], f.turn.resumed)
		}
		if f.fact.Model != downModel || f.fact.Next != "gpt-chaos" {
			x.v.otherf("record %d: %+v", f.seq, f.fact)
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
		for _, epoch := range x.downs[a.step] {
			i := slices.IndexFunc(x.attempts[a.step], func(t attempt) bool { return m != nil && strconv.Itoa(t.number) == m[1] })
			if i >= 0 && epoch > x.attempts[a.step][i].epoch {
				x.v.rerunf("step %s: process %d asked for it, its answer is of process %d", a.step, epoch, x.attempts[a.step][i].epoch)
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
func (x *examine) summary(seq int64, text string, prompt int64) {
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
		if other.epoch > this.epoch || other.epoch == this.epoch && (other.number > this.number || other.fault == "") {
			x.v.rerunf("record %d: the summary %q of process %d was made again: %q of process %d", seq, text, this.epoch, other.text, other.epoch)
		}
	}
}
