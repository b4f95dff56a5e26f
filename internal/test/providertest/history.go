package providertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/jsondiff"
)

// CheckHistory checks that the body of a model request carries exactly the
// conversation so far, in order: every text of the user and of the model, every
// tool call with its arguments, and for every call one result under its id.
//
// Ids may have been rewritten, as long as they still tie results to calls; the
// results of calls that were made together may come in any order; an output may
// be wrapped, see the wires' customs: {"output": …} and the like; white space
// around a text does not count. The error names the first difference.
func CheckHistory(body []byte, wire Wire, soFar []Item) error {
	req, err := parseRequest(wire, &url.URL{}, body)
	if err != nil {
		return err
	}
	if err := checkPairs(req.Items); err != nil {
		return err
	}
	got, want := canonical(req.Items), canonical(soFar)
	for i := range want {
		if i >= len(got) {
			return fmt.Errorf("item %d of the history is missing: %s", i, want[i])
		}
		if err := want[i].equal(got[i]); err != nil {
			return fmt.Errorf("item %d of the history: %w", i, err)
		}
	}
	if len(got) > len(want) {
		return fmt.Errorf("the history has %d items too many, the first is %s", len(got)-len(want), got[len(want)])
	}
	return nil
}

// String names an item in an error.
func (i Item) String() string {
	const most = 80
	s := i.Text + i.Args
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %q", i.Kind, i.ID, i.Name, s)), " ")
}

// checkPairs checks that every call has one result, before the user speaks
// again, and that every result has a call.
func checkPairs(items []Item) error {
	var open []Item
	for _, item := range items {
		switch item.Kind {
		case Call:
			open = append(open, item)
		case Result:
			i := callOf(open, item)
			if i < 0 {
				return fmt.Errorf("%s answers no open call", item)
			}
			open = slices.Delete(open, i, i+1)
		case User:
			if len(open) > 0 {
				return fmt.Errorf("%s has no result before %s", open[0], item)
			}
		case Assistant, Other:
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%s has no result", open[0])
	}
	return nil
}

// callOf returns the index of the call that a result answers: by id, or without
// one the first of its name; -1 if there is none.
func callOf(calls []Item, result Item) int {
	return slices.IndexFunc(calls, func(c Item) bool {
		return c.ID == result.ID && (c.ID != "" || result.Name == "" || c.Name == result.Name)
	})
}

// canonical brings items into the form in which conversations can be compared:
// neighbouring texts of one speaker are joined, prompts with an empty line
// between them, as wires want it that allow no two prompts in a row; ids become
// the number of the call in the conversation, and results stand in the order of
// their calls.
func canonical(items []Item) []Item {
	var out, open []Item
	var numbers []string // of the open calls
	calls := 0
	for _, item := range items {
		switch item.Kind {
		case User, Assistant:
			if n := len(out); n > 0 && out[n-1].Kind == item.Kind {
				if item.Kind == User {
					out[n-1].Text += "\n\n"
				}
				out[n-1].Text += item.Text
				continue
			}
		case Call:
			open = append(open, item)
			calls++
			item.ID = fmt.Sprintf("#%06d", calls)
			numbers = append(numbers, item.ID)
		case Result:
			if i := callOf(open, item); i >= 0 {
				item.ID, item.Name = numbers[i], open[i].Name
				open, numbers = slices.Delete(open, i, i+1), slices.Delete(numbers, i, i+1)
			}
			item.Text = unwrap(item.Text)
		case Other:
		}
		out = append(out, item)
	}
	out = slices.DeleteFunc(out, func(i Item) bool {
		return (i.Kind == User || i.Kind == Assistant) && strings.TrimSpace(i.Text) == ""
	})
	for start := 0; start < len(out); start++ {
		end := start
		for end < len(out) && out[end].Kind == Result {
			end++
		}
		slices.SortStableFunc(out[start:end], func(a, b Item) int { return strings.Compare(a.ID, b.ID) })
		start = max(start, end)
	}
	return out
}

// equal compares two items of canonical lists.
func (i Item) equal(got Item) error {
	same := i.Kind == got.Kind && i.Name == got.Name && i.ID == got.ID
	switch i.Kind {
	case Call:
		// What is no JSON cannot be carried by every wire.
		same = same && (!json.Valid([]byte(i.Args)) || jsondiff.Equal(i.Args, got.Args))
	default:
		same = same && (strings.TrimSpace(i.Text) == strings.TrimSpace(got.Text) || jsondiff.Equal(i.Text, got.Text))
	}
	if same {
		return nil
	}
	return errors.New("it is " + got.String() + ", not " + i.String())
}
