package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Printer shows what a daemon knows: tables to people, JSON to programs.
type Printer struct {
	// Out takes it all.
	Out io.Writer
	// JSON writes each thing as protobuf JSON on a line.
	JSON bool
	// Now is the time that relative ones refer to.
	Now time.Time
}

// list writes things as JSON or as rows below a header.
func list[M proto.Message](p *Printer, things []M, header []string, row func(M) []string) error {
	if p.JSON {
		for _, m := range things {
			if err := WriteJSON(p.Out, m); err != nil {
				return err
			}
		}
		return nil
	}
	if len(things) == 0 {
		_, err := fmt.Fprintln(p.Out, "nothing")
		return err
	}
	rows := [][]string{header}
	for _, m := range things {
		rows = append(rows, row(m))
	}
	return table(p.Out, rows)
}

// table aligns columns; cells are made safe for a terminal.
func table(w io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i := range row {
			if row[i] = line(row[i], maxDetail); row[i] == "" {
				row[i] = "-"
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fact is a line of a description; without a value it is left out.
type fact struct{ name, value string }

// describe writes facts one below the other.
func describe(w io.Writer, facts []fact) error {
	width := 0
	for _, f := range facts {
		if f.value != "" {
			width = max(width, len(f.name))
		}
	}
	var b strings.Builder
	for _, f := range facts {
		if f.value == "" {
			continue
		}
		text := strings.ReplaceAll(strings.TrimRight(Clean(f.value), "\n"), "\n", "\n"+strings.Repeat(" ", width+2))
		fmt.Fprintf(&b, "%-*s  %s\n", width, f.name, text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Sessions lists sessions.
func (p *Printer) Sessions(sessions []*agentdv1.Session) error {
	header := []string{"SESSION", "STATE", "LAST TURN", "UPDATED", "TOKENS", "COST", "REF", "LABELS"}
	return list(p, sessions, header, func(s *agentdv1.Session) []string {
		return []string{
			s.GetId(), sessionState(s), status(s.GetLastTurnStatus()), ago(p.Now, s.GetUpdateTime()),
			number(s.GetUsage().GetTotalTokens()), cost(s.GetUsage()), s.GetClientRef(), labels(s.GetLabels()),
		}
	})
}

// sessionState reports whether a session takes new turns: a purged one does not, in whatever state.
func sessionState(s *agentdv1.Session) string {
	state := word(s.GetState(), "SESSION_STATE_")
	if s.GetPurged() {
		return state + ", purged"
	}
	return state
}

// Session shows one session.
func (p *Printer) Session(s *agentdv1.Session) error {
	if p.JSON {
		return WriteJSON(p.Out, s)
	}
	facts := []fact{
		{"session", s.GetId()},
		{"state", word(s.GetState(), "SESSION_STATE_")},
		{"ref", s.GetClientRef()},
		{"labels", labels(s.GetLabels())},
		{"created by", s.GetCreatedBy()},
		{"created", exact(p.Now, s.GetCreateTime())},
		{"updated", exact(p.Now, s.GetUpdateTime())},
		{"used", usage(s.GetUsage())},
		{"budget", budget(s.GetBudget())},
		{"version", strconv.FormatInt(s.GetVersion(), 10)},
		{"last seq", strconv.FormatInt(s.GetLastSeq(), 10)},
	}
	if m := s.GetMetadata(); m != nil {
		if text, err := json.Marshal(m.AsMap()); err == nil {
			facts = append(facts, fact{"metadata", string(text)})
		}
	}
	if s.GetAgentRef() != nil {
		facts = append(facts, fact{"agent", refText(s.GetAgentRef().GetName(), s.GetAgentRef().GetVersion())})
	}
	if s.GetForkedFrom() != "" {
		facts = append(facts, fact{"forked from", fmt.Sprintf("%s at %d", s.GetForkedFrom(), s.GetForkedThroughSeq())})
	}
	if s.GetLastTurnId() != "" {
		facts = append(facts, fact{"last turn", s.GetLastTurnId() + ", " + status(s.GetLastTurnStatus())})
	}
	if s.GetDropToolPayloads() {
		facts = append(facts, fact{"tool payloads", "not kept after their turn"})
	}
	if s.GetPurged() {
		facts = append(facts, fact{"log", "no longer kept"})
	}
	return describe(p.Out, facts)
}

// Turns lists turns.
func (p *Printer) Turns(turns []*agentdv1.Turn) error {
	header := []string{"TURN", "SESSION", "STATUS", "CREATED", "TOOK", "TOKENS", "COST", "PROMPT"}
	return list(p, turns, header, func(t *agentdv1.Turn) []string {
		took := ""
		if t.GetDuration() != nil {
			took = duration(t.GetDuration().AsDuration())
		}
		return []string{
			t.GetId(), t.GetSessionId(), status(t.GetStatus()), ago(p.Now, t.GetCreateTime()), took,
			number(t.GetUsage().GetTotalTokens()), cost(t.GetUsage()), line(t.GetUserPrompt(), 40),
		}
	})
}

// Turn shows one turn.
func (p *Printer) Turn(t *agentdv1.Turn) error {
	if p.JSON {
		return WriteJSON(p.Out, t)
	}
	facts := []fact{
		{"turn", t.GetId()},
		{"session", t.GetSessionId()},
		{"status", status(t.GetStatus())},
		{"why", t.GetStatusMessage()},
		{"created", exact(p.Now, t.GetCreateTime())},
		{"started", exact(p.Now, t.GetStartTime())},
		{"ended", exact(p.Now, t.GetEndTime())},
		{"took", ""},
		{"used", usage(t.GetUsage())},
		{"model", t.GetModel()},
		{"injected into", t.GetInjectedInto()},
		{"prompt", t.GetUserPrompt()},
	}
	if t.GetErrorCode() != agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED {
		facts[3].value = fmt.Sprintf("%s (%s)", t.GetStatusMessage(), codeName(t.GetErrorCode()))
	}
	if t.GetDuration() != nil {
		facts[7].value = duration(t.GetDuration().AsDuration())
	}
	for _, p := range t.GetUserParts() {
		facts = append(facts, fact{"with", part(p)})
	}
	for _, c := range t.GetPendingToolCalls() {
		what := fmt.Sprintf("tool %s %s (call %s)",
			c.GetToolName(), line(c.GetToolInput(), maxDetail), c.GetToolCallId())
		facts = append(facts, fact{"waits for", what})
	}
	for _, i := range t.GetPendingInteractions() {
		facts = append(facts, fact{"asks", asks(i) + " (interaction " + i.GetId() + ")"})
	}
	if v := t.GetStructuredOutput(); v != "" {
		facts = append(facts, fact{"value", v})
	}
	return describe(p.Out, append(facts, fact{"output", t.GetOutputText()}))
}

// part says in words what is a part of a prompt.
func part(p *agentdv1.Part) string {
	switch c := p.GetContent().(type) {
	case *agentdv1.Part_Inline:
		return c.Inline.GetMimeType() + ", " + number(int64(len(c.Inline.GetData()))) + " bytes"
	case *agentdv1.Part_File:
		return c.File.GetMimeType() + ", " + c.File.GetUri()
	default:
		return p.GetText()
	}
}

// asks says what an interaction asks, on one line.
func asks(i *agentdv1.Interaction) string {
	if i.GetKind() == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL && i.GetQuestion() == "" {
		return i.GetToolName() + " " + line(i.GetToolInput(), maxDetail)
	}
	text := i.GetQuestion()
	if len(i.GetChoices()) > 0 {
		text += " [" + strings.Join(i.GetChoices(), " | ") + "]"
	}
	return line(text, maxDetail)
}

// Interactions lists interactions.
func (p *Printer) Interactions(all []*agentdv1.Interaction) error {
	header := []string{"INTERACTION", "SESSION", "KIND", "STATUS", "CREATED", "AGENT", "ASKS"}
	return list(p, all, header, func(i *agentdv1.Interaction) []string {
		return []string{
			i.GetId(), i.GetSessionId(),
			word(i.GetKind(), "INTERACTION_KIND_"), word(i.GetStatus(), "INTERACTION_STATUS_"),
			ago(p.Now, i.GetCreateTime()), speaker(i.GetAgentPath()), asks(i),
		}
	})
}

// Interaction shows what has become of one.
func (p *Printer) Interaction(i *agentdv1.Interaction) error {
	if p.JSON {
		return WriteJSON(p.Out, i)
	}
	_, err := fmt.Fprintln(p.Out, terminal.Outcome(client.InteractionOf(i)))
	return err
}

// Models lists models. pricesDate is the day of the prices that do not say theirs.
func (p *Printer) Models(models []*agentdv1.Model, pricesDate string) error {
	long, first, last := false, pricesDate, pricesDate
	header := []string{"MODEL", "PROVIDER", "KEY", "CONTEXT", "READS", "IN $/M", "CACHED", "WRITTEN", "OUT"}
	err := list(p, models, header, func(m *agentdv1.Model) []string {
		key := "bring your own"
		if m.GetAvailable() {
			key = "not needed"
		}
		long = long || len(m.GetPrice().GetTiers()) > 1
		day := cmp.Or(m.GetPrice().GetDate(), pricesDate)
		first, last = min(first, day), max(last, day)
		can := m.GetCapabilities()
		return []string{
			m.GetName(), m.GetProvider(), key,
			size(can.GetContextTokens()), cmp.Or(strings.Join(can.GetInputs(), " "), "-"),
			prices(m, (*agentdv1.PriceTier).GetInput), prices(m, (*agentdv1.PriceTier).GetCached), written(m),
			prices(m, (*agentdv1.PriceTier).GetOutput),
		}
	})
	if err != nil || p.JSON || pricesDate == "" {
		return err
	}
	if first != last {
		last = first + " to " + last
	}
	note := "Context in tokens. List prices of " + Clean(last) + ", in dollars per million tokens"
	if long {
		note += ", in brackets those of long prompts"
	}
	_, err = fmt.Fprintf(p.Out, "\n%s. Providers serve models of other names, too.\n", note)
	return err
}

// Done says that something has been done. Programs know by the exit code.
func (p *Printer) Done(format string, args ...any) error {
	if p.JSON {
		return nil
	}
	_, err := fmt.Fprintln(p.Out, Clean(fmt.Sprintf(format, args...)))
	return err
}
