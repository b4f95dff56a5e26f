package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
)

// speaker is the agent at the end of a path.
func speaker(path []string) string {
	if len(path) == 0 {
		return "agent"
	}
	return Line(path[len(path)-1], maxDetail)
}

// asked is what a person is asked.
func asked(i *client.Interaction) string {
	if i.Kind == client.InteractionApproval && i.Question == "" {
		return fmt.Sprintf("asks to call %s %s", i.ToolName, Line(string(i.ToolInput), maxDetail))
	}
	return "asks: " + Line(i.Question, maxDetail)
}

// Outcome says in a line what has become of an interaction.
func Outcome(i *client.Interaction) string {
	what := "the question"
	if i.N > 0 {
		what += ", " + Line(i.Question, maxDetail) + ","
	} else if i.ToolName != "" {
		what = "the call of " + Line(i.ToolName, maxDetail)
	}
	said := i.Resolution
	if said == nil {
		return what + " is no longer asked"
	}
	switch said.Kind {
	case client.ResolutionApproval:
		if said.ToolInput != nil {
			return what + " was approved with other arguments: " + Line(string(said.ToolInput), maxDetail)
		}
		if said.Scope != "" && said.Scope != "once" {
			return what + " was approved for: " + said.Scope
		}
		return what + " was approved"
	case client.ResolutionDenial:
		if said.Reason != "" {
			return what + " was denied: " + Line(said.Reason, maxDetail)
		}
		return what + " was denied"
	case client.ResolutionAnswer:
		return what + " was answered: " + Line(said.Answer, maxDetail)
	default:
		return what + " was resolved"
	}
}

// provided are the lines that tell what a provider has run and what a response
// cites, each source once.
func provided(p *client.ProviderToolsUsed) string {
	var b strings.Builder
	for _, u := range p.Uses {
		fmt.Fprintf(&b, "→ %s (by the provider)\n", Line(u.Name+" "+u.Input, maxDetail))
		if u.Error != "" {
			fmt.Fprintf(&b, "✗ %s: %s\n", Line(u.Name, maxDetail), Line(u.Error, maxDetail))
		}
	}
	var sources []string
	for _, c := range p.Citations {
		uri, title := Line(c.URI, maxURI), Line(c.Title, maxDetail)
		source := cmp.Or(uri, title)
		if uri != "" && title != "" {
			source = title + " " + uri
		}
		if source != "" && !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}
	for i, source := range sources[:min(len(sources), maxSources)] {
		fmt.Fprintf(&b, "[%d] %s\n", i+1, source)
	}
	if more := len(sources) - maxSources; more > 0 {
		fmt.Fprintf(&b, "… and %d more\n", more)
	}
	return b.String()
}

// files says what a message has besides text, such as " [image/png, text]".
func files(parts []client.Part) string {
	if len(parts) == 0 {
		return ""
	}
	var out []string
	for _, p := range parts {
		switch {
		case p.Text != "":
			out = append(out, "text")
		case p.URI != "":
			out = append(out, p.MIMEType+" "+p.URI)
		case p.ToolName != "":
			out = append(out, "tool "+p.ToolName)
		default:
			out = append(out, cmp.Or(p.MIMEType, "something new"))
		}
	}
	return " [" + strings.Join(out, ", ") + "]"
}

// rounded is a duration as people read it best.
func rounded(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
