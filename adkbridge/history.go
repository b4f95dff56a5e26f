package adkbridge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// user is the author of prompts.
const user = "user"

// item is one event of a session as prompts need it. It is immutable, apart
// from the converted form and the weight, which are made on first use.
type item struct {
	seq            int64
	author, branch string
	content        *genai.Content // without parts if it says nothing
	converted      *genai.Content // content as other agents see it
	weight         int            // of content, see weigh; 0 until it is asked for
	response       bool           // a model's
	context        int64          // see stored.context
	compacted      *record.Compacted
	span           span  // of compacted
	tried          bool  // a summary that was asked for brought nothing
	fork           *fork // the agent that is called with this sees more; nil for none
}

// fork is what an agent that is called as a tool sees besides its room: what its caller saw before it called.
type fork struct {
	callID        string
	agent, branch string // of the caller
	before        int64  // the record of the call
}

// history holds a session's events and the prompts built from them. Its methods may be
// called from any goroutine.
type history struct {
	mu      sync.Mutex // protects all fields
	items   []*item    // in order of seq
	upto    int64      // seq of the last record read
	bytes   int        // stored size of the items
	prompts map[promptKey]*prompt
	room    *encoded.Room    // for what requests of models were made of
	forks   map[string]*fork // by room
}

// maxEncoded bounds what of a session's requests is kept as it was sent, in bytes.
const maxEncoded = 16 << 20

func newHistory() *history {
	return &history{prompts: map[promptKey]*prompt{}, forks: map[string]*fork{}, room: encoded.NewRoom(maxEncoded)}
}

// forgetLocked drops a prompt. It is rebuilt when it is asked for.
func (h *history) forgetLocked(key promptKey) {
	h.prompts[key].encoded.Forget()
	delete(h.prompts, key)
}

// add adds one event, whose record has size bytes. Its place is the end, unless a
// replayed turn reaches its events in another order than the log's.
func (h *history) add(it *item, size int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes += size
	if it.fork != nil {
		h.forkLocked(it)
	}
	n := len(h.items)
	if n == 0 || h.items[n-1].seq < it.seq {
		h.items = append(h.items, it)
		return
	}
	at, _ := slices.BinarySearchFunc(h.items, it.seq, func(e *item, seq int64) int { return int(e.seq - seq) })
	h.items = slices.Insert(h.items, at, it)
	for k, p := range h.prompts {
		if p.next > at {
			h.forgetLocked(k)
		}
	}
}

// size is what the log holds of the items, in bytes.
func (h *history) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// memory is about what the history takes, in bytes: its size, and what is kept of requests.
func (h *history) memory() int { return h.size() + h.room.Bytes() }

// addStored adds a decoded event.
func (h *history) addStored(seq int64, s *stored, size int) {
	m := &s.CustomMetadata.Agentd
	it := &item{
		seq: seq, author: s.Author, branch: s.Branch, content: s.Content,
		response: m.LLM != "", context: s.context(), compacted: m.Compacted, tried: m.NoGain == noGainAsked,
	}
	if m.Span != nil {
		it.span = *m.Span
	}
	if m.Forks {
		it.fork = &fork{callID: m.Request}
	}
	h.add(it, size)
}

// load reads the records after those it knows. It adds no event of the turn that
// started at startSeq but returns them: the turn decides when they become history.
func (h *history) load(ctx context.Context, run handle) (openTurn, error) {
	var open openTurn
	startSeq := run.StartSeq()
	var began int64 // the start of the turn that is being read
	for rec, err := range run.Records(ctx, h.upto) {
		if err != nil {
			return open, fmt.Errorf("read the history: %w", err)
		}
		switch rec.Kind {
		case record.KindTurnStarted:
			var f struct {
				Prompt string                  `json:"prompt"`
				Parts  record.Parts            `json:"parts"`
				Seed   []*agentdv1.SeedMessage `json:"seed"`
				Alone  *record.AgentChange     `json:"agent_started"`
			}
			if err := unmarshal(rec.Data, &f); err != nil {
				return open, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			if began = rec.Seq; began == startSeq && f.Alone != nil {
				open.changed(*f.Alone)
			}
			h.addSeed(rec.Seq, f.Seed)
			h.add(&item{seq: rec.Seq, author: user, content: userContent(f.Prompt, f.Parts)}, len(rec.Data))
		case record.KindEvent:
			s, err := decode(rec.Data)
			if err != nil {
				return open, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			if rec.Seq > startSeq {
				open.add(loggedEvent{seq: rec.Seq, size: len(rec.Data), ev: s})
				continue
			}
			h.addStored(rec.Seq, s, len(rec.Data))
		case record.KindTurnEnded:
			var end record.TurnEnded
			if err := unmarshal(rec.Data, &end); err != nil {
				return open, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			if rec.Seq <= startSeq && dropsFiles(end.Code) {
				h.dropFiles(began)
			}
		case record.KindModelRetry, record.KindModelFallback:
			if rec.Seq > startSeq {
				if err := open.failed(rec); err != nil {
					return open, fmt.Errorf("record %d: %w", rec.Seq, err)
				}
			}
		case record.KindAgentsChanged:
			if rec.Seq > startSeq {
				var f record.AgentsChanged
				if err := unmarshal(rec.Data, &f); err != nil {
					return open, fmt.Errorf("record %d: %w", rec.Seq, err)
				}
				open.changed(f.Changes...)
			}
		case record.KindRemoteSession:
			if rec.Seq > startSeq {
				if err := open.noteRemote(rec.Data); err != nil {
					return open, fmt.Errorf("record %d: %w", rec.Seq, err)
				}
			}
		case record.KindTurnResumed, record.KindToolCall, record.KindToolResult,
			record.KindRawPayload, record.KindInteractionRaised, record.KindInteractionResolved,
			record.KindTurnQueued, record.KindTurnDropped, record.KindClientsLeft, record.KindCompactionAsked,
			record.KindGoalStarted, record.KindGoalCheckpointed, record.KindGoalPaused, record.KindGoalResumed,
			record.KindGoalEnded, record.KindMessageInjected, record.KindChildSpawned, record.KindChildReported:
			// A result becomes history in the event that holds it, a queued prompt in the
			// turn that it starts or the event that it becomes.
		}
		if rec.Seq <= startSeq {
			h.upto = rec.Seq
		}
	}
	return open, nil
}

// addSeed adds the messages that a session begins with. They come before its first record, the turn's start, whose size
// includes theirs. All agents see what the assistant said as their own.
func (h *history) addSeed(seq int64, seed []*agentdv1.SeedMessage) {
	for i, m := range seed {
		role := genai.Role(genai.RoleUser)
		if m.GetRole() == seedAssistant {
			role = genai.RoleModel
		}
		h.add(&item{
			seq: seq - int64(len(seed)-i), author: user, content: genai.NewContentFromText(m.GetContent(), role),
		}, 0)
	}
}

// seedAssistant is the role of a seed message of a model.
const seedAssistant = "assistant"

// loggedEvent is an event of the running turn that the log already holds.
type loggedEvent struct {
	seq  int64
	size int
	ev   *stored
}

// openTurn is what the log holds of the running turn.
type openTurn struct {
	events []loggedEvent
	// cut are the model calls that have failed tries and no end. An agent makes one call at
	// a time in a room.
	cut map[roomKey]*cutCall
	// agents counts the starts and the ends of agents.
	agents map[changeKey]int
	// remotes are the sessions on backends, by agent.
	remotes map[string]*remoteState
}

// cutCall is a model call that was cut off.
type cutCall struct {
	path   []string
	branch string       // if it is known: not that of a summary of which only a change is recorded
	model  string       // that was called last, if it is known
	usage  record.Usage // what its failed tries took
}

func (o *openTurn) add(l loggedEvent) {
	o.events = append(o.events, l)
	if l.ev.CustomMetadata.Agentd.Usage != nil {
		delete(o.cut, roomKey{l.ev.Author, lineage.Room(l.ev.Branch)})
	}
}

// changed counts starts and ends of agents.
func (o *openTurn) changed(changes ...record.AgentChange) {
	if o.agents == nil {
		o.agents = map[changeKey]int{}
	}
	for i := range changes {
		o.agents[changeKeyOf(&changes[i])]++
	}
}

// failed adds the usage of a failed try or a failed model.
func (o *openTurn) failed(rec record.Record) error {
	var f struct {
		MessageID string        `json:"message_id"`
		Path      []string      `json:"path"`
		Next      string        `json:"next"` // of a ModelFallback
		Usage     *record.Usage `json:"usage"`
	}
	if err := unmarshal(rec.Data, &f); err != nil {
		return err
	}
	if len(f.Path) == 0 {
		return nil
	}
	agent := roomKey{f.Path[len(f.Path)-1], lineage.Room(lineage.BranchOf(f.MessageID))}
	if o.cut[agent] == nil {
		if o.cut == nil {
			o.cut = map[roomKey]*cutCall{}
		}
		o.cut[agent] = &cutCall{path: f.Path}
	}
	c := o.cut[agent]
	c.model, c.branch = cmp.Or(f.Next, c.model), cmp.Or(lineage.BranchOf(f.MessageID), c.branch)
	if f.Usage != nil {
		c.usage = c.usage.Add(f.Usage.CountedBy(""))
	}
	return nil
}

// lastAuthor returns the newest agent that spoke and that ok accepts, or "".
func (h *history) lastAuthor(ok func(name string) bool) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range slices.Backward(h.items) {
		if it.author != user && it.compacted == nil && ok(it.author) {
			return it.author
		}
	}
	return ""
}

// prune drops the prompts of agents that keep rejects.
func (h *history) prune(keep func(name string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.prompts {
		if !keep(k.agent) {
			h.forgetLocked(k)
		}
	}
}

// visible reports whether an agent on one branch sees an event of another: the
// branches of parallel siblings are hidden from each other, and so are the rooms of
// calls of agents, each from what is outside of it and from what is below.
func visible(mine, other string) bool {
	room := lineage.Room(mine)
	if room != lineage.Room(other) {
		return false
	}
	mine, other = strings.TrimPrefix(mine[len(room):], "."), strings.TrimPrefix(other[len(room):], ".")
	return mine == "" || other == "" || mine == other || strings.HasPrefix(mine, other+".")
}

// asForeign returns an event as other agents see it: as something that the user says.
// It leaves out thoughts and parts that hold only a provider's opaque data; nil if
// nothing is left.
func (it *item) asForeign() *genai.Content {
	if it.converted != nil || it.content == nil {
		return it.converted
	}
	c := &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{Text: "For context:"}}}
	say := func(format string, args ...any) {
		c.Parts = append(c.Parts, &genai.Part{Text: fmt.Sprintf(format, args...)})
	}
	for _, p := range it.content.Parts {
		switch {
		case p.Thought:
		case p.Text != "":
			say("[%s] said: %s", it.author, p.Text)
		case p.FunctionCall != nil:
			say("[%s] called tool `%s` with parameters: %s", it.author, p.FunctionCall.Name,
				jsonText(p.FunctionCall.Args))
		case p.FunctionResponse != nil:
			say("[%s] `%s` tool returned result: %s", it.author, p.FunctionResponse.Name,
				jsonText(p.FunctionResponse.Response))
			for _, f := range p.FunctionResponse.Parts {
				if file := fileOf(f); file != nil {
					c.Parts = append(c.Parts, file)
				}
			}
			for _, tool := range model.References(p) {
				say("[%s] `%s` tool found the tool `%s`", it.author, p.FunctionResponse.Name, tool)
			}
		case p.InlineData != nil, p.FileData != nil, p.ExecutableCode != nil, p.CodeExecutionResult != nil:
			c.Parts = append(c.Parts, p)
		}
	}
	if len(c.Parts) > 1 {
		it.converted = c
	}
	return it.converted
}

// jsonText returns a value as ADK writes it into a prompt.
func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}
