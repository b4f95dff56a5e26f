// Package skills reads Agent Skills: folders with a SKILL.md, whose instructions an agent
// loads when it needs them.
//
//	set := skills.Load(cfg.Root)
//	err := set.AddTo(toolSet, gate)         // list_skills, load_skill, load_skill_resource
//	agent = client.LLM(…, client.Instruction(set.Listing()))
//
// The project's are in .agents/skills, the user's in ~/.agents/skills; of two with the same
// name the project's counts. A folder is a skill as the Agent Skills specification says: a
// SKILL.md whose frontmatter has at least a description. What else is wrong with it is a
// warning, and it loads. A skill is text for a model and grants nothing.
//
// The package knows tools of a client, and no connection.
package skills

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apzuk3/agentd/internal/plainfile"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// Bounds of skills.
const (
	maxSkills      = 256
	maxListing     = 128 << 10 // of what an instruction says of all skills, in bytes
	maxFile        = 256 << 10 // of a SKILL.md, in bytes
	maxResource    = 256 << 10 // of what load_skill_resource returns, in bytes
	maxName        = 64
	maxDescription = 1024
	maxCompatible  = 500
)

// Skill is one skill.
type Skill struct {
	Name, Description string
	// Frontmatter is all that stands before the instructions.
	Frontmatter map[string]any
	// Instructions are what an agent reads that loads the skill.
	Instructions string
	// Dir is the skill's folder.
	Dir string
	// Project is true for a skill of the project, false for one of the user.
	Project bool
}

// Set is the skills that there are, by name. It does not change, and may be used concurrently.
type Set struct {
	skills []Skill // in the order of their names
	// Warnings are what is wrong with folders, each with its path, for the user.
	Warnings []string
}

// Load reads the skills of a project and those of the user. A folder that is not there has none.
func Load(root string) *Set {
	s := &Set{}
	s.folder(filepath.Join(root, ".agents", "skills"), true)
	if home, err := os.UserHomeDir(); err == nil && home != root {
		s.folder(filepath.Join(home, ".agents", "skills"), false)
	}
	slices.SortFunc(s.skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// All returns the skills in the order of their names.
func (s *Set) All() []Skill { return slices.Clone(s.skills) }

// Listing is what an instruction says of the skills, "" if there are none.
func (s *Set) Listing() string {
	if len(s.skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Skills are instructions for special tasks. " +
		"When a task fits one, load it with load_skill before you begin:\n")
	for i, k := range s.skills {
		line := fmt.Sprintf("- %s: %s\n", k.Name, strings.Join(strings.Fields(k.Description), " "))
		if b.Len()+len(line) > maxListing {
			fmt.Fprintf(&b, "- %d more: list_skills has them.\n", len(s.skills)-i)
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func (s *Set) find(name string) (*Skill, error) {
	byName := func(k Skill, name string) int { return strings.Compare(k.Name, name) }
	if i, ok := slices.BinarySearchFunc(s.skills, name, byName); ok {
		return &s.skills[i], nil
	}
	return nil, fmt.Errorf("there is no skill %q; there are: %s", name, strings.Join(s.names(), ", "))
}

func (s *Set) names() (out []string) {
	for _, k := range s.skills {
		out = append(out, k.Name)
	}
	return out
}

func (s *Set) warnf(path, format string, args ...any) {
	s.Warnings = append(s.Warnings, path+": "+fmt.Sprintf(format, args...))
}

// folder reads the skills below a folder.
func (s *Set) folder(dir string, project bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.warnf(dir, "%v", err)
		}
		return
	}
	for _, entry := range entries {
		at := filepath.Join(dir, entry.Name())
		if info, err := os.Stat(at); err != nil || !info.IsDir() {
			continue
		}
		data, err := text(at, "SKILL.md", maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		path := filepath.Join(at, "SKILL.md")
		if err != nil {
			s.warnf(path, "%v", err)
			continue
		}
		k, err := s.parse(path, data)
		if err != nil {
			s.warnf(path, "it is no skill: %v", err)
			continue
		}
		k.Dir, k.Project = at, project
		switch same := slices.IndexFunc(s.skills, func(o Skill) bool { return o.Name == k.Name }); {
		case same >= 0 && s.skills[same].Project && !project: // the project's wins
		case same >= 0:
			s.warnf(path, "the name %q is that of %s", k.Name, s.skills[same].Dir)
		case len(s.skills) >= maxSkills:
			s.warnf(path, "there are more than %d skills", maxSkills)
			return
		default:
			s.skills = append(s.skills, *k)
		}
	}
}

var (
	nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	known    = []string{"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
)

// parse reads a SKILL.md. What is against the specification is a warning.
func (s *Set) parse(path string, data []byte) (*Skill, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	head, body, ok := frontmatter(string(data))
	if !ok {
		return nil, errors.New("it has no frontmatter between lines of ---")
	}
	k := &Skill{Instructions: strings.TrimSpace(body), Frontmatter: map[string]any{}}
	limits := yamlfile.Limits{Bytes: maxFile, Tokens: 4096, Depth: 8, Values: 4096, Holds: "frontmatter"}
	if err := yamlfile.Decode([]byte(head), limits, &k.Frontmatter); err != nil {
		return nil, fmt.Errorf("its frontmatter: %w", err)
	}
	k.Description, _ = k.Frontmatter["description"].(string)
	if strings.TrimSpace(k.Description) == "" {
		return nil, errors.New("its frontmatter has no description")
	}
	if n := utf8.RuneCountInString(k.Description); n > maxDescription {
		s.warnf(path, "the description has %d characters, at most %d are allowed", n, maxDescription)
	}
	dir := filepath.Base(filepath.Dir(path))
	k.Name, _ = k.Frontmatter["name"].(string)
	switch {
	case k.Name == "":
		s.warnf(path, "the name is missing: it is taken to be that of the folder")
		k.Name = dir
	case len(k.Name) > maxName || !nameForm.MatchString(k.Name):
		s.warnf(path, "the name %.80q must be 1 to %d of a-z, 0-9 and single - between them", k.Name, maxName)
	case k.Name != dir:
		s.warnf(path, "the name %q must be that of the folder, %q", k.Name, dir)
	}
	s.check(path, k.Frontmatter)
	return k, nil
}

// check warns of what else is against the specification.
func (s *Set) check(path string, head map[string]any) {
	for _, key := range []string{"license", "compatibility", "allowed-tools"} {
		v, set := head[key]
		text, ok := v.(string)
		if set && !ok {
			s.warnf(path, "%s must be a text", key)
		}
		if n := utf8.RuneCountInString(text); key == "compatibility" && n > maxCompatible {
			s.warnf(path, "compatibility has %d characters, at most %d are allowed", n, maxCompatible)
		}
	}
	if v, set := head["metadata"]; set {
		m, ok := v.(map[string]any)
		for _, value := range m {
			if _, text := value.(string); !text {
				ok = false
			}
		}
		if !ok {
			s.warnf(path, "metadata must be texts by name")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(head)) {
		if !slices.Contains(known, key) {
			s.warnf(path, "%q is no key of the frontmatter; known are: %s", key, strings.Join(known, ", "))
		}
	}
}

// frontmatter splits a file at its first two lines of ---.
func frontmatter(text string) (head, body string, ok bool) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return "", "", false
	}
	if body, ok := strings.CutPrefix(rest, "---\n"); ok {
		return "", body, true
	}
	head, body, ok = strings.Cut(rest, "\n---\n")
	if !ok {
		head, ok = strings.CutSuffix(rest, "\n---")
	}
	return head, body, ok
}

// text reads a text file inside a folder.
func text(dir, name string, most int) ([]byte, error) {
	data, err := plainfile.Read(dir, name, most)
	if err == nil && bytes.IndexByte(data, 0) >= 0 {
		err = errors.New("it is a binary file")
	}
	return data, err
}
