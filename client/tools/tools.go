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
	"github.com/apzuk3/agentd/client/internal/gated"
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
	for _, field := range v.Fields() {
		out = append(out, field.Addr().Interface().(*bool))
	}
	return out
}

// Disable takes a tool away. A name that no tool has is an error that lists those that there are.
func (b *Builtins) Disable(name string) error {
	i := slices.Index(names, name)
	if i < 0 {
		known := slices.Sorted(slices.Values(names))
		return fmt.Errorf("unknown tool %q; known are: %s", name, strings.Join(known, ", "))
	}
	*b.fields()[i] = false
	return nil
}

// Registry has the tools of one configuration. It may serve any number of sessions at the same time.
type Registry struct {
	// Set has the tools, for client.WithTools or client.WithAttachment.
	Set *client.ToolSet
	// The lists of what is to be done that agents keep, for screens to show.
	Todo *TodoStore

	built []string
	cfg   *conf.Config
	gate  *permit.Gate
	web   *fetcher
	jobs  jobs
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
			r.built = append(r.built, names[i])
		}
	}
	if len(r.built) > 0 {
		r.Set.Unattended(gate.Unattended)
	}
	return r, nil
}

// builders add each tool to a registry.
var builders = map[string]func(*Registry) error{
	"read_file":       func(r *Registry) error { return add(r, "read_file", r.readFile) },
	"read_many_files": func(r *Registry) error { return add(r, "read_many_files", r.readManyFiles) },
	"write_file":      func(r *Registry) error { return add(r, "write_file", r.writeFile) },
	"edit_file":       func(r *Registry) error { return add(r, "edit_file", r.editFile) },
	"delete_file":     func(r *Registry) error { return add(r, "delete_file", r.deleteFile) },
	"stat":            func(r *Registry) error { return add(r, "stat", r.stat) },
	"list_dir":        func(r *Registry) error { return add(r, "list_dir", r.listDir) },
	"glob":            func(r *Registry) error { return add(r, "glob", r.glob) },
	"grep":            func(r *Registry) error { return add(r, "grep", r.grep) },
	"json_query":      func(r *Registry) error { return add(r, "json_query", r.jsonQuery) },
	"fetch_url":       func(r *Registry) error { return add(r, "fetch_url", r.fetchURL) },
	"bash":            func(r *Registry) error { return add(r, "bash", r.bash) },
	"bash_output":     func(r *Registry) error { return add(r, "bash_output", r.bashOutput) },
	"bash_kill":       func(r *Registry) error { return add(r, "bash_kill", r.bashKill) },
	"todo":            func(r *Registry) error { return add(r, "todo", r.todo) },
	"record_plan":     func(r *Registry) error { return add(r, "record_plan", r.recordPlan) },
}

// descriptions are what models read.
var descriptions = map[string]string{
	"read_file": "Reads a text file: its lines from offset on. next_offset is where to go on.",
	"read_many_files": "Reads several text files at once: those of paths, then those below path whose names match " +
		"pattern.",
	"write_file": "Writes a file as a whole, and makes the folders above it.",
	"edit_file": "Replaces old_string by new_string in a file. old_string must occur once, unless replace_all is " +
		"true.",
	"delete_file": "Deletes a file. One that is not there counts as deleted; a folder is refused.",
	"stat":        "Tells whether a path exists, and its size, time and mode.",
	"list_dir":    "Lists what is in a folder.",
	"glob": "Finds files below path whose base names match pattern, such as *.go. It has no **: all folders are " +
		"searched.",
	"grep":       "Finds lines that match a regular expression (RE2) in a file, or in all text files below a folder.",
	"json_query": "Runs a jq query on a JSON file (path) or on a JSON text (json).",
	"fetch_url":  "Fetches a web page by GET. Only some hosts are in reach.",
	"bash": "Runs a command with /bin/sh in the project's folder. With background true it goes on until the turn " +
		"ends: bash_output reads what it says, bash_kill ends it.",
	"bash_output": "Reads what a command in the background has said, from a byte on.",
	"bash_kill":   "Ends a command in the background, with all that it has started.",
	"todo": "Keeps the list of what is to be done. action is list, add (text), set_status (id, and status pending, " +
		"in_progress or completed), or clear.",
	"record_plan": "Writes down the plan of what is to be done, before anything is changed.",
}

// add adds a tool whose calls may wait for a person.
func add[In, Out any](r *Registry, name string, run func(context.Context, In) (Out, error)) error {
	effect, ok := effects[name]
	if !ok {
		effect = client.EffectRead
	}
	return client.AddTool(r.Set, name, descriptions[name], run, client.ToolTimeout(maxWait), client.ToolEffect(effect))
}

// effects are those of the tools that do not only read.
var effects = map[string]client.Effect{
	"write_file": client.EffectWrite, "edit_file": client.EffectWrite, "delete_file": client.EffectWrite,
	"fetch_url": client.EffectNetwork, "bash": client.EffectExecute, "bash_kill": client.EffectExecute,
	"todo": client.EffectInternal, "record_plan": client.EffectInternal,
}

// Names returns the names of the tools that there are.
func (r *Registry) Names() []string { return slices.Clone(r.built) }

// Close ends the commands in the background and waits until they are gone. The tools must not be called any more.
func (r *Registry) Close() error {
	r.jobs.close()
	return nil
}

// allowed asks the gate.
func (r *Registry) allowed(ctx context.Context, tool, kind, detail, effect string) error {
	return gated.Check(ctx, r.gate, permit.Request{Tool: tool, Kind: kind, Detail: detail, Effect: effect})
}
