package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/apzuk3/agentd/client"
)

const pngHead = "\x89PNG\r\n\x1a\n"

// filesDir is a folder of files of many types.
func filesDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "image"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"photo.JPG": "x", "notes.md": "# hi", "report.pdf": "%PDF-", "photo": pngHead, "plain": "just text", "odd": "\x00\x01\x02",
		"empty.png": "", "image/png=photo": "y",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func inline(kind, data string) client.Part { return client.Inline(kind, []byte(data)) }

// The type of a file is what is said, else that of its name, else of its content.
func TestFilesOfPrompts(t *testing.T) {
	t.Chdir(filesDir(t))
	for name, tc := range map[string]struct {
		want  client.Part
		fails string
	}{
		"photo.JPG":                         {inline("image/jpeg", "x"), ""},
		"notes.md":                          {inline("text/markdown", "# hi"), ""},
		"report.pdf":                        {inline("application/pdf", "%PDF-"), ""},
		"photo":                             {inline("image/png", pngHead), ""},
		"plain":                             {inline("text/plain", "just text"), ""},
		"video/mp4=odd":                     {inline("video/mp4", "\x00\x01\x02"), ""},
		"image/png=photo":                   {inline("text/plain", "y"), ""}, // there is a file of this name
		"image/gif=photo":                   {inline("image/gif", pngHead), ""},
		"odd":                               {client.Part{}, "as in image/png=odd"},
		"empty.png":                         {client.Part{}, "the file is empty"},
		"missing.png":                       {client.Part{}, "no such file"},
		"image":                             {client.Part{}, "is a directory"},
		"https://x.example/a/cat.png?x=y.z": {client.FileURI("image/png", "https://x.example/a/cat.png?x=y.z"), ""},
		"gs://bucket/doc.pdf":               {client.FileURI("application/pdf", "gs://bucket/doc.pdf"), ""},
		"video/mp4=https://x.example/watch": {client.FileURI("video/mp4", "https://x.example/watch"), ""},
		"https://x.example/watch":           {client.Part{}, "as in image/png=https://x.example/watch"},
		"https://x.example/%zz.png":         {client.Part{}, "invalid URL"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parts([]string{name})
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) || !strings.Contains(err.Error(), "--file "+name) {
					t.Errorf("got %v, want %q", err, tc.fails)
				}
				return
			}
			if diff := cmp.Diff([]client.Part{tc.want}, got, cmpopts.IgnoreUnexported(client.Part{})); err != nil || diff != "" {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := parts(slices.Repeat([]string{"plain"}, 65)); err == nil || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("65 files: %v", err)
	}
}

// With files a prompt may be left out.
func TestFilesInTheRequest(t *testing.T) {
	agent := file(t, "{name: a, llm: {model: echo}}")
	photo := filepath.Join(filesDir(t), "photo")
	for name, tc := range map[string]struct {
		args   runCmd
		prompt string
	}{
		"a file and a prompt":  {runCmd{File: agent, Prompt: "what?", Files: []string{photo}}, "what?"},
		"a file alone":         {runCmd{File: agent, Files: []string{photo}}, ""},
		"a session":            {runCmd{Session: "s", Files: []string{photo}}, ""},
		"a session's prompt":   {runCmd{Session: "s", File: "what?", Files: []string{photo}}, "what?"},
		"a session with a raw": {runCmd{Session: "s", File: agent, Raw: "x", Files: []string{photo}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			task, err := tc.args.task(&process{})
			if err != nil {
				t.Fatal(err)
			}
			ex := task.prompt
			if ex.Text != tc.prompt || len(ex.Parts) != 1 || ex.Raw != (tc.args.Raw != "") || (ex.Agent != nil) != (tc.args.File == agent) {
				t.Errorf("asks for %v", ex)
			}
		})
	}
	if _, err := (&runCmd{File: agent}).task(&process{}); err == nil || !strings.Contains(err.Error(), "the prompt is missing") {
		t.Errorf("without a prompt: %v", err)
	}
}

// The files of a command line reach the model; a file alone is a prompt.
func TestRunFiles(t *testing.T) {
	s := startShell(t, map[string]string{"eye": "answers: [{text: 'You said {{last_user}}.'}]"})
	agent := file(t, "{name: a, llm: {model: scripted/eye}}")
	photo := filepath.Join(filesDir(t), "photo")
	out := s.says(true, "run", agent, "what?", "--file", photo, "-f", "https://x.example/a,b.gif")
	contains(t, out, "You said what?", "[image/png, 8 bytes]", "[image/gif, https://x.example/a,b.gif].")
	contains(t, s.says(true, "run", agent, "--file", photo), "You said [image/png, 8 bytes].")
	contains(t, s.fails(exitUsage, "run", agent, "--file", photo+"graph"), "--file "+photo+"graph", "no such file")
}
