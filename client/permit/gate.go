package permit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/apzuk3/agentd/client/conf"
)

// Kinds of requests, and what they do.
const (
	Command = "command" // Detail is the text for the shell
	Path    = "path"    // Detail is the path, absolute and clean
	URL     = "url"
	Call    = "call" // an MCP tool or a skill; Detail is its name

	Read     = "read"
	Write    = "write"
	Execute  = "execute"
	Network  = "network"
	Internal = "internal" // of nothing but the agent's own; it always passes
)

// Request is what a tool is about to do.
type Request struct {
	Tool    string
	Kind    string
	Detail  string
	Effect  string
	Session string // what is remembered is of one session
	Source  string // the sub-agent; "" for the root
}

// maxRemembered bounds the decisions that a gate remembers; the oldest go first.
const maxRemembered = 4096

// Gate decides what tools may do. It may be used concurrently, by any number of sessions.
type Gate struct {
	cfg      *conf.Config
	prompter Prompter
	allow    []rule
	deny     []rule

	mu         sync.Mutex // protects the fields below
	mode       string
	scope      []reach // the project's folder first
	always     []rule  // allowed since
	remembered map[memory]bool
	order      []memory // the oldest first
	planned    map[string]bool
}

// memory is a decision for a session: of one request, of a verb, or of a tool.
type memory struct{ session, tool, kind, detail string }

// New makes a gate. p may be nil: what would have to be asked then fails with [ErrNoPrompter]. The configuration must
// not be changed any more, but by the gate.
func New(cfg *conf.Config, p Prompter) (*Gate, error) {
	if cfg == nil {
		return nil, errors.New("permit.New: the configuration is missing; conf.Default has one")
	}
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("permit.New: %w", err)
	}
	g := &Gate{
		cfg: cfg, prompter: p, mode: cfg.Permissions.Mode,
		remembered: map[memory]bool{}, planned: map[string]bool{},
		scope: []reach{newReach(cfg.Root, conf.AllowedPath{Path: cfg.Root, Access: "rw"})},
	}
	for _, p := range cfg.PathScope.AllowPaths {
		g.scope = append(g.scope, newReach(cfg.Root, p))
	}
	var err error
	if g.allow, err = parseRules("allow", cfg.Permissions.Allow); err != nil {
		return nil, err
	}
	if g.deny, err = parseRules("deny", cfg.Permissions.Deny); err != nil {
		return nil, err
	}
	return g, nil
}

// Mode returns the mode in force.
func (g *Gate) Mode() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode
}

// SetMode changes the mode, for all sessions.
func (g *Gate) SetMode(mode string) error {
	if modes := conf.Modes(); !slices.Contains(modes, mode) {
		return fmt.Errorf("mode must be one of %s, it is %q", strings.Join(modes, ", "), mode)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = mode
	return nil
}

// Unattended returns an error that matches [ErrNoPrompter] if the mode asks for all that no rule allows and nobody is
// there to be asked: an agent that works on its own would come to nothing.
func (g *Gate) Unattended() error {
	if g.prompter != nil || g.Mode() != "ask" {
		return nil
	}
	return fmt.Errorf("the mode of the gate is ask, and %w: give permit.New a prompter (permit.InTurn asks whoever "+
		"answers questions of turns), or set permissions.mode to allow, acceptEdits, plan or yolo", ErrNoPrompter)
}

// Planned says that a session has recorded its plan, which plan_mode required asks for.
func (g *Gate) Planned(session string) { g.setPlanned(session, true) }

// Replan takes that back: the session has to record another plan.
func (g *Gate) Replan(session string) { g.setPlanned(session, false) }

func (g *Gate) setPlanned(session string, is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.planned) >= maxRemembered {
		clear(g.planned) // they record theirs again
	}
	g.planned[session] = is
}

// Check returns nil if the tool may do it. It may take as long as a person takes to answer. Its errors are for the
// model, and match [ErrDenied], [ErrNoPrompter], or what the prompter or the context failed with.
func (g *Gate) Check(ctx context.Context, r Request) error {
	if r.Effect == Internal {
		return nil
	}
	q := g.look(r)
	verdict, why := g.decide(q)
	switch verdict {
	case pass:
		return nil
	case refuse:
		return q.denied(why)
	default:
		return g.ask(ctx, q, why)
	}
}

// Denies reports whether a deny rule forbids a tool a path.
func (g *Gate) Denies(tool, path string) bool {
	return g.denied(g.look(Request{Tool: tool, Kind: Path, Detail: path})) != nil
}

// DeniesURL reports whether a deny rule forbids a tool a URL.
func (g *Gate) DeniesURL(tool, url string) bool {
	return g.denied(g.look(Request{Tool: tool, Kind: URL, Detail: url})) != nil
}

// query is a request with what the gate has found out of it.
type query struct {
	Request
	names   []string // what rules are compared with
	script  *script  // of a command
	outside bool
}

func (g *Gate) look(r Request) *query {
	q := &query{Request: r}
	switch r.Kind {
	case Command:
		q.script = parse(r.Detail)
		q.names = append([]string{r.Detail}, q.script.texts()...)
	case Path:
		q.names = []string{r.Detail}
		if rel, err := filepath.Rel(g.cfg.Root, r.Detail); err == nil && filepath.IsLocal(rel) {
			q.names = append(q.names, rel)
		}
		access := "r"
		if r.Effect == Write {
			access = "w"
		}
		_, _, in := g.Reach(r.Detail, access)
		q.outside = !in
	default:
		q.names = []string{r.Detail}
	}
	return q
}

// denied is the refusal of a request.
func (q *query) denied(why string) error {
	return fmt.Errorf("%s(%s) is %w: %s", q.Tool, shorten(q.Detail), ErrDenied, why)
}

// shorten cuts a text for an error.
func shorten(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

type verdict int

const (
	pass verdict = iota
	refuse
	question
)

// decide applies the steps of the package's doc.
func (g *Gate) decide(q *query) (v verdict, why string) {
	if q.script != nil && q.script.danger != "" {
		return refuse, q.script.danger + "; no mode and no rule permits it"
	}
	if r := g.denied(q); r != nil {
		return refuse, fmt.Sprintf("the rule %q of permissions.deny forbids it", r.text)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	effect := q.Effect != Read
	if effect && g.cfg.PlanMode == "required" && !g.planned[q.Session] {
		return refuse, "plan_mode is required: write down the plan with record_plan first"
	}
	knows := g.knowsLocked(q)
	v, why = g.byModeLocked(q)
	allowed := g.allowsLocked(q)
	switch {
	case q.outside && v == refuse && !allowed:
		return v, why
	case q.outside && !knows:
		return question, "the path is out of scope"
	case allowed, knows:
		return pass, ""
	}
	return v, why
}

// denied returns the deny rule that holds, or nil.
func (g *Gate) denied(q *query) *rule {
	for i := range g.deny {
		r := &g.deny[i]
		if r.isFor(q.Tool) && r.any(q.texts(r)) {
			return r
		}
	}
	return nil
}

// texts are what a rule is compared with.
func (q *query) texts(r *rule) []string {
	if q.Kind == Path && !strings.Contains(r.glob, "/") {
		return append(slices.Clip(q.names), filepath.Base(q.Detail))
	}
	return q.names
}

// allowsLocked reports whether allow rules cover a request.
func (g *Gate) allowsLocked(q *query) bool {
	var rules []*rule
	for _, set := range [][]rule{g.allow, g.always} {
		for i := range set {
			if set[i].isFor(q.Tool) {
				rules = append(rules, &set[i])
			}
		}
	}
	if q.script == nil {
		return slices.ContainsFunc(rules, func(r *rule) bool { return r.any(q.texts(r)) })
	}
	if slices.ContainsFunc(rules, func(r *rule) bool { return r.exact && r.plain == q.Detail }) {
		return true
	}
	if q.script.hides != "" || len(q.script.simples) == 0 {
		return false
	}
	for i := range q.script.simples {
		c := &q.script.simples[i]
		covered := c.outer || slices.ContainsFunc(rules, func(r *rule) bool { return r.matches(c.text()) })
		if !covered {
			return false
		}
	}
	return true
}

// byModeLocked is what the mode says.
func (g *Gate) byModeLocked(q *query) (verdict, string) {
	write := q.Kind == Path && q.Effect == Write
	switch {
	case q.Effect == Read, g.mode == "yolo", g.mode == "acceptEdits" && write:
		return pass, ""
	case g.mode == "allow", g.mode == "plan":
		return refuse, fmt.Sprintf("the mode %s lets only reads pass, and what permissions.allow names", g.mode)
	default:
		return question, "the mode asks"
	}
}

// memories are the decisions that cover a request: of it, of its verb, and of its tool.
func (q *query) memories() []memory {
	out := []memory{{q.Session, q.Tool, q.Kind, q.Detail}}
	if q.outside { // consent opens that path alone
		return out
	}
	out = append(out, memory{session: q.Session, tool: q.Tool})
	if verb := q.verb(); verb != "" {
		out = append(out, memory{q.Session, q.Tool, "verb", verb})
	}
	return out
}

// verb is the program that all simple commands of a command run, "" if there are several or the text does not tell.
func (q *query) verb() (verb string) {
	if q.script == nil || q.script.hides != "" {
		return ""
	}
	for i := range q.script.simples {
		c := &q.script.simples[i]
		if first := c.words[0].text; verb == "" && !c.words[0].open {
			verb = first
		} else if first != verb {
			return ""
		}
	}
	return verb
}

// knowsLocked reports whether a person has let a request pass before.
func (g *Gate) knowsLocked(q *query) bool {
	return slices.ContainsFunc(q.memories(), func(m memory) bool { return g.remembered[m] })
}

func (g *Gate) remember(m memory) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.remembered[m] {
		return
	}
	if len(g.order) >= maxRemembered {
		delete(g.remembered, g.order[0])
		g.order = slices.Delete(g.order, 0, 1)
	}
	g.remembered[m] = true
	g.order = append(g.order, m)
}

// ask asks a person.
func (g *Gate) ask(ctx context.Context, q *query, why string) error {
	if g.prompter == nil {
		return fmt.Errorf("%s(%s) was not run: %s, and %w", q.Tool, shorten(q.Detail), why, ErrNoPrompter)
	}
	ask := PromptRequest{
		Kind: q.Kind, ToolName: q.Tool, Detail: q.Detail, PersistTool: q.Tool, PersistKey: g.persistKey(q),
		Verb: q.verb(), Source: q.Source, Access: access[q.Effect],
	}
	var d Decision
	var err error
	if s, ok := g.prompter.(*serial); ok {
		var skipped bool
		d, skipped, err = s.ask(ctx, ask, func() bool {
			v, _ := g.decide(g.look(q.Request))
			return v == pass
		})
		if skipped {
			return nil
		}
	} else {
		d, err = g.prompter.AskApproval(ctx, ask)
	}
	switch {
	case errors.Is(err, ErrDenied):
		return fmt.Errorf("%s(%s) is denied by a person: %w", q.Tool, shorten(q.Detail), err)
	case err != nil:
		return fmt.Errorf("%s(%s) was not run: nobody has answered: %w", q.Tool, shorten(q.Detail), err)
	}
	return g.apply(q, ask, d)
}

// access are the values of PromptRequest.Access.
var access = map[string]string{Read: "r", Write: "w", Execute: "x", Network: "n"}

// persistKey is the glob that Always writes for a request: exactly that.
func (g *Gate) persistKey(q *query) string {
	if strings.ContainsAny(q.Detail, "\x00") {
		return ""
	}
	return escape(q.Detail)
}

// apply does what a person has said.
func (g *Gate) apply(q *query, ask PromptRequest, d Decision) error {
	if d == SessionVerb && ask.Verb == "" || d == Always && ask.PersistKey == "" || d == SessionTool && q.outside {
		d = Session
	}
	switch d {
	case Once:
	case Session:
		g.remember(memory{q.Session, q.Tool, q.Kind, q.Detail})
	case SessionVerb:
		g.remember(memory{q.Session, q.Tool, "verb", ask.Verb})
	case SessionTool:
		g.remember(memory{session: q.Session, tool: q.Tool})
	case Always:
		if err := g.persist(q, ask); err != nil { // it holds for this session all the same
			g.remember(memory{q.Session, q.Tool, q.Kind, q.Detail})
			return fmt.Errorf("%s(%s) was not run: the decision could not be saved: %w", q.Tool, shorten(q.Detail), err)
		}
	default:
		return q.denied("a person said no")
	}
	return nil
}

// persist saves a decision for good.
func (g *Gate) persist(q *query, ask PromptRequest) error {
	if q.outside {
		p := conf.AllowedPath{Path: q.Detail, Access: "r"}
		if q.Effect == Write {
			p.Access = "rw"
		}
		err := g.cfg.Update(func(c *conf.Config) {
			if !slices.Contains(c.PathScope.AllowPaths, p) {
				c.PathScope.AllowPaths = append(c.PathScope.AllowPaths, p)
			}
		})
		if err == nil {
			g.mu.Lock()
			g.scope = append(g.scope, newReach(g.cfg.Root, p))
			g.mu.Unlock()
		}
		return err
	}
	text := ask.PersistTool + ":" + ask.PersistKey
	r, err := parseRule(text)
	if err != nil {
		return err
	}
	err = g.cfg.Update(func(c *conf.Config) {
		if !slices.Contains(c.Permissions.Allow, text) {
			c.Permissions.Allow = append(c.Permissions.Allow, text)
		}
	})
	if err == nil {
		g.mu.Lock()
		g.always = append(g.always, r)
		g.mu.Unlock()
	}
	return err
}
