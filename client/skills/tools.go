package skills

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/internal/gated"
	"github.com/apzuk3/agentd/client/permit"
)

// LoadSkill is the tool with which an agent loads a skill.
const LoadSkill = "load_skill"

// ToolNames returns the names of the tools that AddTo adds.
func ToolNames() []string { return []string{"list_skills", LoadSkill, "load_skill_resource"} }

type (
	nothing struct{}
	listed  struct {
		Skills []entry `json:"skills"`
	}
	entry struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	loadIn struct {
		Name string `json:"name" jsonschema:"the skill"`
	}
	loadOut struct {
		SkillName    string         `json:"skill_name"`
		Instructions string         `json:"instructions"`
		Frontmatter  map[string]any `json:"frontmatter"`
	}
	resourceIn struct {
		SkillName    string `json:"skill_name"`
		ResourcePath string `json:"resource_path" jsonschema:"a file of the skill, from its folder"`
	}
	resourceOut struct {
		Content string `json:"content"`
	}
)

// AddTo adds the tools with which agents load skills. The gate is asked about the tool skill, with the skill's name,
// which counts as a read; it may be nil. Without skills nothing is added.
func (s *Set) AddTo(to client.ToolHolder, gate *permit.Gate) error {
	if len(s.skills) == 0 {
		return nil
	}
	a := &access{s, gate}
	read := []client.ToolOption{client.ToolEffect(client.EffectRead), client.ToolTimeout(24 * time.Hour)}
	return errors.Join(
		client.AddTool(to, "list_skills", "Lists the skills that can be loaded.", a.list, read...),
		client.AddTool(to, LoadSkill, "Loads the instructions of a skill.", a.load, read...),
		client.AddTool(to, "load_skill_resource", "Reads a file of a skill that its instructions name.",
			a.resource, read...),
	)
}

// access is the tools' way to the skills.
type access struct {
	set  *Set
	gate *permit.Gate
}

func (a *access) list(context.Context, nothing) (*listed, error) {
	out := &listed{Skills: []entry{}}
	for _, k := range a.set.skills {
		text := k.Description
		if len(text) > maxDescription { // all of them have to fit into a result
			text = strings.ToValidUTF8(text[:maxDescription], "") + "…"
		}
		out.Skills = append(out.Skills, entry{k.Name, text})
	}
	return out, nil
}

func (a *access) load(ctx context.Context, in loadIn) (*loadOut, error) {
	k, err := a.open(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &loadOut{k.Name, k.Instructions, k.Frontmatter}, nil
}

func (a *access) resource(ctx context.Context, in resourceIn) (*resourceOut, error) {
	k, err := a.open(ctx, in.SkillName)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(in.ResourcePath) {
		return nil, fmt.Errorf("resource_path %q must lead to a file inside the folder of the skill", in.ResourcePath)
	}
	data, err := text(k.Dir, filepath.FromSlash(in.ResourcePath), maxResource)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the skill %q has no file %q", k.Name, in.ResourcePath)
	case err != nil:
		return nil, fmt.Errorf("%s of the skill %q: %w", in.ResourcePath, k.Name, err)
	}
	return &resourceOut{strings.ToValidUTF8(string(data), "\uFFFD")}, nil
}

// open returns a skill if the gate agrees.
func (a *access) open(ctx context.Context, name string) (*Skill, error) {
	k, err := a.set.find(name)
	if err != nil || a.gate == nil {
		return k, err
	}
	ask := permit.Request{Tool: "skill", Kind: permit.Call, Detail: k.Name, Effect: permit.Read}
	return k, gated.Check(ctx, a.gate, ask)
}
