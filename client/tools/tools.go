package tools

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
)

// Builtins are the tools to build, by name: a field is true for each that is wanted.
type Builtins struct {
	ReadFile, ReadManyFiles, WriteFile, EditFile, DeleteFile bool
	Stat, ListDir, Glob, Grep, JSONQuery, FetchURL           bool
	Bash, BashOutput, BashKill, Todo, RecordPlan             bool
}

// names are the tools in the order of the fields of Builtins.
var names = []string{
	"read_file", "read_many_files", "write_file", "edit_file", "delete_file",
	"stat", "list_dir", "glob", "grep", "json_query", "fetch_url",
	"bash", "bash_output", "bash_kill", "todo", "record_plan",
}

// Names returns the names of all tools that there are.
func Names() []string { return slices.Clone(names) }

// Default returns all tools. fetch_url is built only if url_scope allows something.
func Default() Builtins {
	var b Builtins
	for _, field := range b.fields() {
		*field = true
	}
	return b
}

// fields are pointers to the fields, in the order of names.
func (b *Builtins) fields() (out []*bool) {
	v := reflect.ValueOf(b).Elem()
	for i := range v.NumField() {
		out = append(out, v.Field(i).Addr().Interface().(*bool))
	}
	return out
}

// Disable takes a tool away. A name that no tool has is an error that lists those that there are.
func (b *Builtins) Disable(name string) error {
	i := slices.Index(names, name)
	if i < 0 {
		return fmt.Errorf("unknown tool %q; known are: %s", name, strings.Join(slices.Sorted(slices.Values(names)), ", "))
	}
	*b.fields()[i] = false
	return nil
}

// Registry has the tools of one configuration. It may serve any number of sessions at the same time.
type Registry struct {
	// Set has the tools, for client.WithTools or client.WithAttachment.
	Set *client.ToolSet
	// Todo has the lists of the tool todo, for screens to show.
	Todo *TodoStore

	cfg  *conf.Config
	gate *permit.Gate
	web  *fetcher
	jobs jobs
}

// maxWait is how long a call may take with the question to a person: the protocol's most.
const maxWait = 24 * time.Hour

// Build makes the tools. Without a configuration or a gate it fails: tools that nothing holds back must be asked for
// by a gate in mode yolo. So do names in tools.disable that no tool has.
func Build(cfg *conf.Config, gate *permit.Gate, b Builtins) (*Registry, error) {
	switch {
	case cfg == nil:
		return nil, errors.New("tools.Build: the configuration is missing; conf.Default has one")
	case gate == nil:
		return nil, errors.New("tools.Build: the gate is missing; permit.New makes one")
	}
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("tools.Build: %w", err)
	}
	for _, name := range cfg.Tools.Disable {
		if err := b.Disable(name); err != nil {
			return nil, fmt.Errorf("tools.disable: %w", err)
		}
	}
	if len(cfg.URLScope.Allow) == 0 {
		b.FetchURL = false
	}
	web, err := newFetcher(cfg.URLScope.Allow)
	if err != nil {
		return nil, err
	}
	r := &Registry{Set: client.NewToolSet(), Todo: newTodoStore(), cfg: cfg, gate: gate, web: web}
	for i, field := range b.fields() {
		if *field {
			if err := builders[names[i]](r); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// builders add each tool to a registry.
var builders = map[string]func(*Registry) error{
	"read_file": func(r *Registry) error {
		return add(r, "read_file", "Reads a text file: its lines from offset on. next_offset is where to go on.", r.readFile)
	},
	"read_many_files": func(r *Registry) error {
		return add(r, "read_many_files",
			"Reads several text files at once: those of paths, then those below path whose names match pattern.", r.readManyFiles)
	},
	"write_file": func(r *Registry) error {
		return add(r, "write_file", "Writes a file as a whole, and makes the folders above it.", r.writeFile)
	},
	"edit_file": func(r *Registry) error {
		return add(r, "edit_file",
			"Replaces old_string by new_string in a file. old_string must occur once, unless replace_all is true.", r.editFile)
	},
	"delete_file": func(r *Registry) error {
		return add(r, "delete_file", "Deletes a file. One that is not there counts as deleted; a folder is refused.", r.deleteFile)
	},
	"stat": func(r *Registry) error {
		return add(r, "stat", "Tells whether a path exists, and its size, time and mode.", r.stat)
	},
	"list_dir": func(r *Registry) error {
		return add(r, "list_dir", "Lists what is in a folder.", r.listDir)
	},
	"glob": func(r *Registry) error {
		return add(r, "glob",
			"Finds files below path whose base names match pattern, such as *.go. It has no **: all folders are searched.", r.glob)
	},
	"grep": func(r *Registry) error {
		return add(r, "grep", "Finds lines that match a regular expression (RE2) in a file, or in all text files below a folder.", r.grep)
	},
	"json_query": func(r *Registry) error {
		return add(r, "json_query", "Runs a jq query on a JSON file (path) or on a JSON text (json).", r.jsonQuery)
	},
	"fetch_url": func(r *Registry) error {
		return add(r, "fetch_url", "Fetches a web page by GET. Only some hosts are in reach.", r.fetchURL)
	},
	"bash": func(r *Registry) error {
		return add(r, "bash",
			"Runs a command with /bin/sh in the project's folder. With background true it goes on until the turn ends: bash_output "+
				"reads what it says, bash_kill ends it.", r.bash)
	},
	"bash_output": func(r *Registry) error {
		return add(r, "bash_output", "Reads what a command in the background has said, from a byte on.", r.bashOutput)
	},
	"bash_kill": func(r *Registry) error {
		return add(r, "bash_kill", "Ends a command in the background, with all that it has started.", r.bashKill)
	},
	"todo": func(r *Registry) error {
		return add(r, "todo",
			"Keeps the list of what is to be done. action is list, add (text), set_status (id, and status pending, in_progress or "+
				"completed), or clear.", r.todo)
	},
	"record_plan": func(r *Registry) error {
		return add(r, "record_plan", "Writes down the plan of what is to be done, before anything is changed.", r.recordPlan)
	},
}

// add adds a tool whose calls may wait for a person.
func add[In, Out any](r *Registry, name, description string, run func(context.Context, In) (Out, error)) error {
	effect, ok := effects[name]
	if !ok {
		effect = client.EffectRead
	}
	return client.AddTool(r.Set, name, description, run, client.ToolTimeout(maxWait), client.ToolEffect(effect))
}

// effects are those of the tools that do not only read.
var effects = map[string]client.Effect{
	"write_file": client.EffectWrite, "edit_file": client.EffectWrite, "delete_file": client.EffectWrite,
	"fetch_url": client.EffectNetwork, "bash": client.EffectExecute, "bash_kill": client.EffectExecute,
	"todo": client.EffectInternal, "record_plan": client.EffectInternal,
}

// Close ends the commands in the background and waits until they are gone. The tools must not be called any more.
func (r *Registry) Close() error {
	r.jobs.close()
	return nil
}

// allowed asks the gate. Where effect is no read, the call has begun afterwards.
func (r *Registry) allowed(ctx context.Context, tool, kind, detail, effect string) error {
	call := client.CallFrom(ctx)
	ask := permit.Request{Tool: tool, Kind: kind, Detail: detail, Effect: effect, Session: call.SessionID()}
	if path := call.AgentPath(); len(path) > 1 {
		ask.Source = path[len(path)-1]
	}
	return r.gate.Check(ctx, ask)
}

// Effects of tools, see permit.Request.
const (
	reads    = "read"
	writes   = "write"
	executes = "execute"
	network  = "network"
)
