package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// mostDigits is how many digits a version has at most, where a text may have one or the beginning of a content hash.
const mostDigits = 7

// ReadAgentRef reads the name of an agent that a daemon keeps, as people write it: desk, desk@3 for a version, or
// desk@1f2e3d4c for the beginning of a content hash.
func ReadAgentRef(text string) (client.AgentRef, error) {
	name, after, found := strings.Cut(text, "@")
	if len(after) > mostDigits {
		return client.AgentRef{Name: text}, nil
	}
	if !found {
		return client.AgentRef{Name: name}, nil
	}
	version, err := strconv.ParseInt(after, 10, 64)
	if err != nil || version < 1 || name == "" {
		return client.AgentRef{}, fmt.Errorf("%q names no agent: write NAME, NAME@VERSION, or NAME@ and the first 8 or "+
			"more digits of its content hash", text)
	}
	return client.AgentRef{Name: name, Version: version}, nil
}

// refText is what ReadAgentRef reads.
func refText(name string, version int64) string { return name + "@" + strconv.FormatInt(version, 10) }

// Agents lists agents.
func (p *Printer) Agents(agents []*agentdv1.RegisteredAgent) error {
	header := []string{"AGENT", "VERSION", "HASH", "CREATED", "BY", "STATE", "DESCRIPTION"}
	return list(p, agents, header, func(a *agentdv1.RegisteredAgent) []string {
		return []string{
			a.GetName(), number(a.GetVersion()), shortHash(a), ago(p.Now, a.GetCreateTime()), a.GetCreatedBy(),
			agentState(a), a.GetAgent().GetDescription(),
		}
	})
}

func shortHash(a *agentdv1.RegisteredAgent) string {
	return a.GetContentHash()[:min(12, len(a.GetContentHash()))]
}

func agentState(a *agentdv1.RegisteredAgent) string {
	if a.GetArchiveTime() != nil {
		return "archived"
	}
	return "active"
}

// Agent shows one agent.
func (p *Printer) Agent(a *agentdv1.RegisteredAgent) error {
	if p.JSON {
		return WriteJSON(p.Out, a)
	}
	text, err := AgentText(a)
	if err != nil {
		return err
	}
	facts := []fact{
		{"agent", a.GetName()},
		{"version", number(a.GetVersion())},
		{"hash", a.GetContentHash()},
		{"state", agentState(a)},
		{"created by", a.GetCreatedBy()},
		{"created", exact(p.Now, a.GetCreateTime())},
		{"first created", exact(p.Now, a.GetFirstCreateTime())},
	}
	if a.GetArchiveTime() != nil {
		facts = append(facts, fact{"archived", exact(p.Now, a.GetArchiveTime())})
	}
	if err := describe(p.Out, facts); err != nil {
		return err
	}
	_, err = fmt.Fprint(p.Out, Clean(text))
	return err
}

// AgentText is what an agent says, as lines of JSON in an order that does not change.
func AgentText(a *agentdv1.RegisteredAgent) (string, error) {
	text, err := compact(&agentdv1.RegisteredAgent{Agent: a.GetAgent(), Tools: a.GetTools(), Metadata: a.GetMetadata()})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = json.Indent(&b, []byte(text), "", "  ")
	return b.String() + "\n", err
}

// AgentDiff shows what differs between two agents, and reports whether anything does.
func (p *Printer) AgentDiff(a, b *agentdv1.RegisteredAgent, nameA, nameB string) (bool, error) {
	before, err := AgentText(a)
	if err != nil {
		return false, err
	}
	after, err := AgentText(b)
	if err != nil {
		return false, err
	}
	diff := udiff.Unified(nameA, nameB, before, after)
	_, err = fmt.Fprint(p.Out, Clean(diff))
	return diff != "", err
}
