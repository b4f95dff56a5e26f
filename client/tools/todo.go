package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
)

const (
	// maxItems is how many items a list has, maxItem how long one is, and maxLists how many sessions have a list.
	maxItems = 256
	maxItem  = 4 << 10
	maxLists = 1024
	// maxPlan is the longest plan, in bytes.
	maxPlan = 256 << 10
)

// TodoItem is an item of a list.
type TodoItem struct {
	ID     string `json:"id"`
	Text   string `json:"text"`
	Status string `json:"status"` // pending, in_progress or completed
}

// TodoStore has the lists of the tool todo, one a session, of the last 1,024. It may be used concurrently.
type TodoStore struct {
	mu    sync.Mutex // protects the fields below
	lists map[string]*todoList
	order []string // sessions, the one that was changed last at the end
}

type todoList struct {
	items []TodoItem
	last  int
}

func newTodoStore() *TodoStore { return &TodoStore{lists: map[string]*todoList{}} }

// Items returns the list of a session.
func (s *TodoStore) Items(session string) []TodoItem {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lists[session]; l != nil {
		return slices.Clone(l.items)
	}
	return nil
}

// change changes the list of a session and returns what it is then.
func (s *TodoStore) change(session string, do func(*todoList) error) ([]TodoItem, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lists[session]
	if l == nil {
		l = &todoList{}
	}
	if err := do(l); err != nil {
		return nil, err
	}
	s.lists[session] = l
	s.order = append(slices.DeleteFunc(s.order, func(id string) bool { return id == session }), session)
	if len(s.order) > maxLists {
		delete(s.lists, s.order[0])
		s.order = slices.Delete(s.order, 0, 1)
	}
	return slices.Clone(l.items), nil
}

type todoIn struct {
	Action string `json:"action" jsonschema:"list, add, set_status or clear"`
	Text   string `json:"text,omitempty" jsonschema:"of add: what is to be done"`
	ID     string `json:"id,omitempty" jsonschema:"of set_status: the item"`
	Status string `json:"status,omitempty" jsonschema:"of set_status: pending, in_progress or completed"`
}

type todoOut struct {
	Items []TodoItem `json:"items"`
}

var statuses = []string{"pending", "in_progress", "completed"}

func (r *Registry) todo(ctx context.Context, in todoIn) (*todoOut, error) {
	session := client.CallFrom(ctx).SessionID()
	var do func(*todoList) error
	switch in.Action {
	case "list":
		items := r.Todo.Items(session)
		return &todoOut{append([]TodoItem{}, items...)}, nil
	case "add":
		do = func(l *todoList) error { return l.add(in.Text) }
	case "set_status":
		do = func(l *todoList) error { return l.set(in.ID, in.Status) }
	case "clear":
		do = func(l *todoList) error {
			l.items = nil
			return nil
		}
	default:
		return nil, fmt.Errorf("action must be list, add, set_status or clear, it is %q", in.Action)
	}
	items, err := r.Todo.change(session, do)
	return &todoOut{append([]TodoItem{}, items...)}, err
}

func (l *todoList) add(text string) error {
	switch {
	case text == "":
		return errors.New("add needs text")
	case len(text) > maxItem:
		return fmt.Errorf("the text has %d bytes, at most %d are allowed", len(text), maxItem)
	case len(l.items) >= maxItems:
		return fmt.Errorf("the list has %d items, the limit: clear it", len(l.items))
	}
	wire := wireSize(text) + entryWire
	for _, item := range l.items {
		wire += wireSize(item.Text) + entryWire
	}
	if wire > wireRoom {
		return fmt.Errorf("the list has %d items that are too long together: clear it", len(l.items))
	}
	l.last++
	l.items = append(l.items, TodoItem{strconv.Itoa(l.last), text, statuses[0]})
	return nil
}

func (l *todoList) set(id, status string) error {
	if id == "" || status == "" {
		return errors.New("set_status needs id and status")
	}
	if !slices.Contains(statuses, status) {
		return fmt.Errorf("status must be %s, it is %q", strings.Join(statuses, ", "), status)
	}
	for i := range l.items {
		if l.items[i].ID == id {
			l.items[i].Status = status
			return nil
		}
	}
	return fmt.Errorf("the list has no item %q", id)
}

type recordPlanIn struct {
	Plan string `json:"plan" jsonschema:"what is to be done, as Markdown"`
}

type recordPlanOut struct {
	Path    string `json:"path"`
	Seq     int    `json:"seq"`
	Message string `json:"message"`
}

func (r *Registry) recordPlan(ctx context.Context, in recordPlanIn) (*recordPlanOut, error) {
	switch {
	case strings.TrimSpace(in.Plan) == "":
		return nil, errors.New("the plan is empty")
	case len(in.Plan) > maxPlan:
		return nil, fmt.Errorf("the plan has %d bytes, at most %d are allowed", len(in.Plan), maxPlan)
	}
	root, err := os.OpenRoot(r.cfg.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	folder := filepath.Join(conf.Folder, "plans")
	if err := root.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(root.FS(), filepath.ToSlash(folder))
	if err != nil {
		return nil, err
	}
	seq := 1
	for _, entry := range entries {
		text, plan := strings.CutPrefix(strings.TrimSuffix(entry.Name(), ".md"), "plan-")
		if n, err := strconv.Atoi(text); plan && err == nil && n >= seq {
			seq = n + 1
		}
	}
	for ; ; seq++ {
		at := filepath.Join(folder, fmt.Sprintf("plan-%d.md", seq))
		f, err := root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue // another session was faster
		}
		if err != nil {
			return nil, err
		}
		_, err = f.WriteString(strings.TrimRight(in.Plan, "\n") + "\n")
		err = errors.Join(err, f.Close())
		if err != nil {
			return nil, err
		}
		r.gate.Planned(client.CallFrom(ctx).SessionID())
		return &recordPlanOut{at, seq, "the plan is written down; go on with it"}, nil
	}
}
