package skills_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/skills"
)

const published = `---
name: pdf-forms
description: Fills PDF forms. Use it when a form is to be filled.
license: MIT
compatibility: needs pdftk
metadata:
  author: me
  version: "1.0"
allowed-tools: bash read_file
---

# Forms

Read references/fields.md first.
`

// world is a project and a home with skills.
type world struct {
	t          *testing.T
	root, home string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t, t.TempDir(), t.TempDir()}
	t.Setenv("HOME", w.home)
	return w
}

func (w *world) file(dir, name, text string) {
	w.t.Helper()
	path := filepath.Join(dir, ".agents", "skills", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// TestLoad: a published skill loads unchanged; the project's goes before the user's of the same name.
func TestLoad(t *testing.T) {
	w := newWorld(t)
	w.file(w.root, "pdf-forms/SKILL.md", published)
	w.file(w.home, "pdf-forms/SKILL.md", "---\nname: pdf-forms\ndescription: Another\n---\n")
	w.file(w.home, "own/SKILL.md", "\ufeff---\r\nname: own\r\ndescription: |\r\n  My\r\n  own\r\n---\r\nDo it.\r\n")
	w.file(w.root, "notes.md", "no skill")
	w.file(w.root, "empty/README.md", "no skill")
	set := skills.Load(w.root)
	all := set.All()
	if len(all) != 2 || len(set.Warnings) > 0 {
		t.Fatalf("got %v, %q", all, set.Warnings)
	}
	if k := all[0]; k.Name != "own" || k.Instructions != "Do it." || k.Project {
		t.Errorf("got %+v", k)
	}
	if k := all[1]; k.Name != "pdf-forms" || !k.Project || k.Instructions != "# Forms\n\nRead references/fields.md first." || k.Frontmatter["license"] != "MIT" {
		t.Errorf("got %+v", k)
	}
	if got := set.Listing(); !strings.HasSuffix(got, "- own: My own\n- pdf-forms: Fills PDF forms. Use it when a form is to be filled.\n") {
		t.Errorf("listed %q", got)
	}
	if got := skills.Load(t.TempDir()); got.Listing() == "" || len(got.All()) != 2 {
		t.Errorf("without a project: %v", got.All())
	}
	t.Setenv("HOME", t.TempDir())
	if got := skills.Load(t.TempDir()); got.Listing() != "" || len(got.All()) != 0 || len(got.Warnings) != 0 {
		t.Errorf("without any: %v", got)
	}
}

// TestViolations: what is against the specification is a warning and loads, unless it has no description.
func TestViolations(t *testing.T) {
	for text, want := range map[string]string{
		"no frontmatter":                        "it is no skill: it has no frontmatter",
		"---\nname: a\n":                        "it is no skill: it has no frontmatter",
		"---\nname: a\n---\n":                   "it is no skill: its frontmatter has no description",
		"---\n---\n":                            "it is no skill: its frontmatter",
		"---\nname: [\n---\n":                   "it is no skill: its frontmatter",
		"---\ndescription: [a]\n---\n":          "it is no skill: its frontmatter has no description",
		"---\ndescription: \xff\n---\n":         "it is no skill: it is not UTF-8",
		"---\ndescription: x\x00\n---\n":        "it is a binary file",
		"---\ndescription: x\n---\n":            "+the name is missing",
		"---\nname: b\ndescription: x\n---":     `+the name "b" must be that of the folder, "a"`,
		"---\nname: A_1\ndescription: x\n---\n": "+must be 1 to 64 of a-z",
		"---\nname: a\ndescription: " + strings.Repeat("é", 1025) + "\n---\n":                  "+the description has 1025 characters, at most 1024",
		"---\nname: a\ndescription: x\ncompatibility: " + strings.Repeat("x", 501) + "\n---\n": "+compatibility has 501 characters",
		"---\nname: a\ndescription: x\nmetadata: {n: 1}\n---\n":                                "+metadata must be texts by name",
		"---\nname: a\ndescription: x\nlicence: MIT\n---\n":                                    `+"licence" is no key of the frontmatter`,
		"---\nname: a\ndescription: x\nallowed-tools: [bash]\n---\n":                           "+allowed-tools must be a text",
		"---\ndescription: x\n---\n" + strings.Repeat("x", 256<<10):                            "it has more than 262144 bytes",
	} {
		w := newWorld(t)
		w.file(w.root, "a/SKILL.md", text)
		set := skills.Load(w.root)
		want, loads := strings.CutPrefix(want, "+")
		if len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0], want) || !strings.Contains(set.Warnings[0], filepath.Join(w.root, ".agents", "skills", "a", "SKILL.md")) {
			t.Errorf("%.60q: warned %q, want %s", text, set.Warnings, want)
		}
		if (len(set.All()) == 1) != loads {
			t.Errorf("%.60q: loaded %v", text, set.All())
		}
	}
}

// TestTools: an agent lists and loads skills and reads their files, and nothing beside them; a deny rule holds.
func TestTools(t *testing.T) {
	w := newWorld(t)
	w.file(w.root, "pdf-forms/SKILL.md", published)
	w.file(w.root, "pdf-forms/references/fields.md", "fields")
	w.file(w.root, "secret/SKILL.md", "---\nname: secret\ndescription: Do not.\n---\nHidden.\n")
	if err := os.Symlink("../secret/SKILL.md", filepath.Join(w.root, ".agents/skills/pdf-forms/link.md")); err != nil {
		t.Fatal(err)
	}
	cfg, err := conf.Load(w.root)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Permissions.Deny = []string{"skill:secret"}
	gate, err := permit.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := []struct{ name, args, want string }{
		{"list_skills", `{}`, `{"skills":[{"name":"pdf-forms","description":"Fills PDF forms. Use it when a form is to be filled."},{"name":"secret","description":"Do not."}]}`},
		{"load_skill", `{"name": "pdf-forms"}`, `{"skill_name":"pdf-forms","instructions":"# Forms\n\nRead references/fields.md first.","frontmatter":{`},
		{"load_skill", `{"name": "gone"}`, `there is no skill "gone"; there are: pdf-forms, secret`},
		{"load_skill", `{"name": "secret"}`, `the rule "skill:secret" of permissions.deny forbids it`},
		{"load_skill_resource", `{"skill_name": "pdf-forms", "resource_path": "references/fields.md"}`, `{"content":"fields"}`},
		{"load_skill_resource", `{"skill_name": "pdf-forms", "resource_path": "../secret/SKILL.md"}`, "inside the folder of the skill"},
		{"load_skill_resource", `{"skill_name": "pdf-forms", "resource_path": "/etc/passwd"}`, "inside the folder of the skill"},
		{"load_skill_resource", `{"skill_name": "pdf-forms", "resource_path": "link.md"}`, "escapes"},
		{"load_skill_resource", `{"skill_name": "pdf-forms", "resource_path": "references"}`, "no regular file"},
		{"load_skill_resource", `{"skill_name": "pdf-forms", "resource_path": "gone.md"}`, `has no file "gone.md"`},
	}
	var script strings.Builder
	script.WriteString("answers:\n")
	for _, c := range calls {
		fmt.Fprintf(&script, "  - calls: [{name: %s, args_text: %q}]\n", c.name, c.args)
	}
	script.WriteString("  - text: done\n")
	set := client.NewToolSet()
	if err := skills.Load(w.root).AddTo(set, gate); err != nil {
		t.Fatal(err)
	}
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"s": script.String()}})
	clnt := d.Client()
	defer clnt.CloseIdleConnections()
	var got []string
	agent := client.LLM("a", "scripted/s", client.Tools("list_skills", "load_skill", "load_skill_resource"))
	for event, err := range clnt.Run(t.Context(), agent, "go", client.WithTools(set), client.WithPlanMode()) { // they only read
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := event.Data.(*client.ToolCallAnswered); ok {
			got = append(got, e.Output+e.Error)
		}
	}
	if len(got) != len(calls) {
		t.Fatalf("got %q", got)
	}
	for i, c := range calls {
		if !strings.Contains(got[i], c.want) {
			t.Errorf("%s(%s): got %s, want %s", c.name, c.args, got[i], c.want)
		}
	}
	if slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "Hidden") }) {
		t.Error("what is denied was shown")
	}
	none := client.NewToolSet()
	if err := new(skills.Set).AddTo(none, nil); err != nil {
		t.Error(err)
	}
}
