package permit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
)

// asker answers questions and notes them.
type asker struct {
	say permit.Decision

	mu    sync.Mutex
	asked []permit.PromptRequest
}

func (a *asker) AskApproval(_ context.Context, r permit.PromptRequest) (permit.Decision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, r)
	return a.say, nil
}

// came says what came of a request: pass, asked or refused.
func came(t *testing.T, c *conf.Config, r permit.Request) string {
	t.Helper()
	a := &asker{say: permit.Once}
	err := gate(t, c, a).Check(t.Context(), r)
	bare := gate(t, c, nil).Check(t.Context(), r)
	switch {
	case err == nil && len(a.asked) == 1 && errors.Is(bare, permit.ErrNoPrompter):
		return "asked"
	case err == nil && len(a.asked) == 0 && bare == nil:
		return "pass"
	case errors.Is(err, permit.ErrDenied) && len(a.asked) == 0 && errors.Is(bare, permit.ErrDenied):
		return "refused"
	default:
		return fmt.Sprintf("%v after %d questions, without anybody %v", err, len(a.asked), bare)
	}
}

// TestModesAndRules is the table of all modes with all rules, for all kinds of requests.
func TestModesAndRules(t *testing.T) {
	at := func(dir, effect string) func(root string) permit.Request {
		return func(root string) permit.Request {
			path := filepath.Join(dir, "f.txt")
			if dir == "" {
				path = filepath.Join(root, "f.txt")
			}
			return permit.Request{Tool: "tool", Kind: permit.Path, Detail: path, Effect: effect}
		}
	}
	plain := func(kind, detail, effect string) func(string) permit.Request {
		return func(string) permit.Request {
			return permit.Request{Tool: "tool", Kind: kind, Detail: detail, Effect: effect}
		}
	}
	// By mode, in the order ask, allow, plan, acceptEdits, yolo; p passes, a is asked, r is refused.
	for _, row := range []struct {
		name    string
		request func(root string) permit.Request
		none    string // without rules
		allow   string // with an allow rule
	}{
		{"read in scope", at("", permit.Read), "ppppp", "ppppp"},
		{"write in scope", at("", permit.Write), "arrpp", "ppppp"},
		{"read outside", at("/elsewhere", permit.Read), "aaaaa", "aaaaa"},
		{"write outside", at("/elsewhere", permit.Write), "arraa", "aaaaa"},
		{"command", plain(permit.Command, "make f.txt", permit.Execute), "arrap", "ppppp"},
		{"URL", plain(permit.URL, "https://x/f.txt", permit.Network), "arrap", "ppppp"},
		{"MCP tool", plain(permit.Call, "f.txt", permit.Network), "arrap", "ppppp"},
		{"skill", plain(permit.Call, "f.txt", permit.Read), "ppppp", "ppppp"},
		{"internal", plain(permit.Call, "f.txt", permit.Internal), "ppppp", "ppppp"},
	} {
		for i, mode := range []string{"ask", "allow", "plan", "acceptEdits", "yolo"} {
			for _, rules := range []struct{ allow, deny []string }{
				{nil, nil},
				{[]string{"tool:*"}, nil}, {[]string{"*"}, nil}, {[]string{"other:*"}, nil},
				{nil, []string{"tool:*"}}, {[]string{"tool:*"}, []string{"*"}}, {nil, []string{"other:*"}},
			} {
				allows := len(rules.allow) == 1 && rules.allow[0] != "other:*"
				denies := len(rules.deny) == 1 && rules.deny[0] != "other:*"
				want := row.none
				switch {
				case denies && row.name != "internal":
					want = "rrrrr"
				case allows:
					want = row.allow
				}
				c := project(t, mode, rules.allow, rules.deny)
				wants := map[byte]string{'p': "pass", 'a': "asked", 'r': "refused"}[want[i]]
				if got := came(t, c, row.request(c.Root)); got != wants {
					t.Errorf("%s, mode %s, allow %q, deny %q: %s, want %s", row.name, mode, rules.allow, rules.deny, got, wants)
				}
			}
		}
	}
}

// TestPathRules: a path rule is compared with the path, with that from the project's folder, and with the base name.
func TestPathRules(t *testing.T) {
	c := project(t, "acceptEdits", nil, []string{"*.env", "docs/*", "read_file:secret", "src/a?.go"})
	c.Permissions.Deny = append(c.Permissions.Deny, filepath.Join(c.Root, "abs", "*"))
	g := gate(t, c, nil)
	for path, denied := range map[string]bool{
		".env": true, "a/b/prod.env": true, "a.env.txt": false, "docs/x": true, "docs/x/y/z": true, "a/docs/x": false, "docs": false,
		"secret": true, "a/secret": true, "secrets": false, "src/ab.go": true, "src/abc.go": false, "abs/x/y": true, "abs": false,
	} {
		r := permit.Request{Tool: "read_file", Kind: permit.Path, Detail: filepath.Join(c.Root, path), Effect: permit.Read}
		if err := g.Check(t.Context(), r); errors.Is(err, permit.ErrDenied) != denied || !denied && err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if g.Denies("read_file", r.Detail) != denied {
			t.Errorf("%s: denied is %v", path, !denied)
		}
	}
	if g.Denies("grep", filepath.Join(c.Root, "secret")) {
		t.Error("a rule of one tool holds for another")
	}
	for rule, want := range map[string]string{"bash:": "no glob", "": "no glob", "[": "malformed", "bash:[a": "malformed"} {
		for _, key := range []string{"allow", "deny"} {
			c := project(t, "ask", []string{rule}, nil)
			if key == "deny" {
				c.Permissions.Allow, c.Permissions.Deny = nil, []string{rule}
			}
			if _, err := permit.New(c, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "permissions."+key+"[0]") {
				t.Errorf("%s %q: %v", key, rule, err)
			}
		}
	}
	g = gate(t, project(t, "ask", []string{"https://x.org/*", "fetch_url:https://y.org/*"}, nil), nil)
	for url, pass := range map[string]bool{"https://x.org/a/b": true, "https://y.org/a": true, "https://z.org/": false} {
		err := g.Check(t.Context(), permit.Request{Tool: "fetch_url", Kind: permit.URL, Detail: url, Effect: permit.Network})
		if (err == nil) != pass {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestEvasions: no spelling takes a command past the rules.
func TestEvasions(t *testing.T) {
	allow := gate(t, project(t, "ask", []string{"bash:go test*", "bash:ls*", "bash:echo*", "bash:exact > file"}, nil), nil)
	for text, pass := range map[string]bool{
		"go test ./...": true, "go test": true, "ls -l && go test ./...": true, "(ls; go test)": true, "echo $(ls)": true, `go "test" ./...`: true,
		"timeout 60 go test ./...": true, "nice go test": true, "sh -c 'go test ./...'": true, "if ls; then go test; fi": true, "ls 2>/dev/null": true, "ls 2>&1 | go test": true,
		"ls >&2": true, "echo \"$X\"": true, "exact > file": true, "go test | xargs echo": false, "ls || true": false,
		"go test; rm x": false, "go test && rm x": false, "go test & rm x": false, "go test | rm x": false, "go test\nrm x": false, "go test $(rm x)": false,
		"go test `rm x`": false, `go test "$(rm x)"`: false, "go test <(rm x)": false, "go test <<E\n$(rm x)\nE": false, "(rm x; go test)": false, "{ go test; rm x; }": false,
		"if rm x; then go test; fi": false, "! rm x": false, "f() { rm x; }; go test": false, "go test > file": false, "go test >> file": false, "go test &> file": false, "ls >| x": false,
		"echo x > ~/.bashrc": false, "LD_PRELOAD=x go test": false, "PATH=. go test": false, "PATH=.; go test": false, "export PATH=.; go test": false, "X=rm; $X y": false, "$X go test": false, "${X}go test": false, "go$X test": false,
		"eval go test": false, "eval 'rm x'": false, ". ./go test": false, "source go test": false, "alias go='rm x'; go test": false, "sudo go test": false,
		"sh go test": false, "sh -c \"$X\"": false, "ls | sh": false, "sh <<<'ls'": false, "sh < ls": false, "env -S 'rm x'": false, "env rm x": false, "xargs rm": false, "find . -exec rm {} +": false,
		"find . -delete": false, "go test 'unclosed": false, "go te\\st": true, "g? test": false, "{go,test}": false, "~/go test": false, "./go test": false, "/bin/ls": false,
		"command rm x": false, "exec rm x": false, "trap 'rm x' EXIT; go test": false, "coproc rm x": false, "for x in a; do go test; done": false, "echo ${X:=$(rm x)}": false, "echo $((`rm x`))": false,
		"": false, "# go test": false, "go test # rm x": true, "unset PATH; go test": false, "set -a; go test": false, "time rm x": false, "parallel rm ::: x": false,
	} {
		if err := allow.Check(t.Context(), command(text)); (err == nil) != pass {
			t.Errorf("allow %q: %v", text, err)
		}
	}
	deny := gate(t, project(t, "yolo", nil, []string{"bash:rm *", "bash:git push*"}), nil)
	for _, text := range []string{
		"rm x", "ls; rm x", "ls && rm x", "ls || rm x", "ls | rm x", "ls & rm x", "(rm x)", "{ rm x; }", "echo $(rm x)", "echo `rm x`", "cat <(rm x)", `echo "$(rm x)"`, "ls\nrm x", "! rm x",
		`\rm x`, "'rm' x", `r"m" x`, "r''m x", "/bin/rm x", "../../bin/rm x", "sudo rm x", "env A=b rm x", "nohup rm x", "timeout 3 rm x", "xargs rm x", "find . -exec rm x ';'", "command rm x", "exec rm x",
		"sh -c 'rm x'", "bash -c 'ls; rm x'", "eval rm x", "eval 'rm x'", "X=rm; $X x", "A=1 rm x", "rm x > /dev/null", "rm   x", "rm\tx", "alias y='rm x'", "trap 'rm x' 0", "f() { rm x; }",
		"if ls; then rm x; fi", "while ls; do rm x; done", "for i in 1; do rm x; done", "case x in y) rm x;; esac", "cat <<E\n$(rm x)\nE", "sh <<E\nrm x\nE", "echo ${X:-$(rm x)}", "[[ -n $(rm x) ]]", "time rm x",
		"git push", "git  push origin", "git push --force", "A=$(git push)", "rm x 'unclosed",
	} {
		if err := deny.Check(t.Context(), command(text)); !errors.Is(err, permit.ErrDenied) {
			t.Errorf("deny %q: %v", text, err)
		}
	}
	for _, text := range []string{"ls", "echo rm x", "echo 'rm x'", "grep 'git push' x", "git status", "rmdir x"} {
		if err := deny.Check(t.Context(), command(text)); err != nil {
			t.Errorf("deny %q: %v", text, err)
		}
	}
}

// TestDecisions: each decision holds for what it says, and no further.
func TestDecisions(t *testing.T) {
	in := func(r permit.Request, session string) permit.Request {
		r.Session = session
		return r
	}
	first := in(command("go vet ./x"), "one")
	for _, row := range []struct {
		say  permit.Decision
		pass []permit.Request // that need no question afterwards
		ask  []permit.Request
	}{
		{permit.Once, nil, []permit.Request{first}},
		{permit.Session, []permit.Request{first}, []permit.Request{in(first, "two"), in(command("go vet ./y"), "one")}},
		{permit.SessionVerb, []permit.Request{first, in(command("go build && go test"), "one")},
			[]permit.Request{in(first, "two"), in(command("go vet; ls"), "one"), in(command("go vet > x"), "one"), in(command("GOFLAGS=x go vet"), "one")}},
		{permit.SessionTool, []permit.Request{first, in(command("ls > x"), "one")}, []permit.Request{in(first, "two")}},
		{permit.Always, []permit.Request{first, in(first, "two")}, []permit.Request{in(command("go vet ./x y"), "one")}},
	} {
		a := &asker{say: row.say}
		c := project(t, "ask", nil, nil)
		g := gate(t, c, a)
		check := func(r permit.Request) int {
			before := len(a.asked)
			if err := g.Check(t.Context(), r); err != nil {
				t.Errorf("%v: %v", row.say, err)
			}
			return len(a.asked) - before
		}
		if n := check(first); n != 1 {
			t.Errorf("%v: asked %d times", row.say, n)
		}
		for _, r := range row.pass {
			if check(r) != 0 {
				t.Errorf("%v: asked for %+v", row.say, r)
			}
		}
		a.say = permit.Once
		for _, r := range row.ask {
			if check(r) != 1 {
				t.Errorf("%v: not asked for %+v", row.say, r)
			}
		}
		again, err := conf.Load(c.Root)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{}
		if row.say == permit.Always {
			want = []string{"bash:go vet ./x"}
		}
		if !slices.Equal(again.Permissions.Allow, want) {
			t.Errorf("%v: the file has %q", row.say, again.Permissions.Allow)
		}
	}
	a := &asker{say: permit.Deny}
	if err := gate(t, project(t, "ask", nil, nil), a).Check(t.Context(), first); !errors.Is(err, permit.ErrDenied) || !strings.Contains(err.Error(), "a person said no") {
		t.Errorf("denied: %v", err)
	}
	for key, want := range map[string]permit.Decision{"": permit.Deny, "n": permit.Deny, "y": permit.Once, "s": permit.Session, "v": permit.SessionVerb, "t": permit.SessionTool, "a": permit.Always} {
		if got, ok := permit.Key(key); !ok || got != want {
			t.Errorf("key %q: %v", key, got)
		}
	}
	if _, ok := permit.Key("yes"); ok {
		t.Error("yes is a key")
	}
}

// TestAlwaysIsExact: what is saved lets exactly that pass, whatever characters it has, also in a gate made later.
func TestAlwaysIsExact(t *testing.T) {
	for _, text := range []string{"rm *", `echo "a\*b[c]?" > x`, "X=1 make", "a: b", "ls\nls", "https://x", `end\`} {
		c := project(t, "ask", nil, nil)
		if err := gate(t, c, &asker{say: permit.Always}).Check(t.Context(), command(text)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		again, err := conf.Load(c.Root)
		if err != nil {
			t.Fatal(err)
		}
		g := gate(t, again, nil)
		if err := g.Check(t.Context(), command(text)); err != nil {
			t.Errorf("%q is asked again: %v", text, err)
		}
		if err := g.Check(t.Context(), command(text+" more")); !errors.Is(err, permit.ErrNoPrompter) {
			t.Errorf("%q more: %v", text, err)
		}
	}
	c := project(t, "ask", nil, nil)
	if err := os.WriteFile(filepath.Join(c.Root, ".agents"), nil, 0o600); err != nil { // where a folder would be
		t.Fatal(err)
	}
	if err := gate(t, c, &asker{say: permit.Always}).Check(t.Context(), command("ls")); err == nil || !strings.Contains(err.Error(), "could not be saved") {
		t.Errorf("got %v", err)
	}
}

// TestOutside: consent opens one path; always adds it to the scope.
func TestOutside(t *testing.T) {
	far := t.TempDir()
	read := func(name, effect string) permit.Request {
		return permit.Request{Tool: "read_file", Kind: permit.Path, Detail: filepath.Join(far, name), Effect: effect}
	}
	a := &asker{say: permit.SessionTool} // of a path outside: that path alone
	g := gate(t, project(t, "yolo", nil, nil), a)
	for i, r := range []permit.Request{read("a", permit.Read), read("a", permit.Read), read("b", permit.Read)} {
		if err := g.Check(t.Context(), r); err != nil || len(a.asked) != []int{1, 1, 2}[i] {
			t.Errorf("%d: %v, asked %d times", i, err, len(a.asked))
		}
	}
	a = &asker{say: permit.Always}
	c := project(t, "yolo", nil, nil)
	g = gate(t, c, a)
	for i, r := range []permit.Request{read("a", permit.Read), read("a", permit.Read), read("a", permit.Write), read("a", permit.Write)} {
		if err := g.Check(t.Context(), r); err != nil || len(a.asked) != []int{1, 1, 2, 2}[i] {
			t.Errorf("%d: %v, asked %d times", i, err, len(a.asked))
		}
	}
	again, err := conf.Load(c.Root)
	if err != nil {
		t.Fatal(err)
	}
	if want := []conf.AllowedPath{{Path: filepath.Join(far, "a"), Access: "r"}, {Path: filepath.Join(far, "a"), Access: "rw"}}; !slices.Equal(again.PathScope.AllowPaths, want) {
		t.Errorf("the file has %v", again.PathScope.AllowPaths)
	}
	if g := gate(t, again, nil); g.Check(t.Context(), read("a", permit.Read)) != nil || g.Check(t.Context(), read("b", permit.Read)) == nil {
		t.Error("another gate decides otherwise")
	}
}

// TestReach: the deepest folder in scope that has the access, with and without the links that lead there.
func TestReach(t *testing.T) {
	c := project(t, "ask", nil, nil)
	far, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(c.Root, "link")
	if err := os.Symlink(far, link); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	single := filepath.Join(dir, "single")
	if err := os.WriteFile(single, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.PathScope.AllowPaths = []conf.AllowedPath{{Path: "link", Access: "r"}, {Path: "sub", Access: "r"}, {Path: "/write", Access: "w"}, {Path: single, Access: "r"}}
	g := gate(t, c, nil)
	for _, row := range []struct{ path, access, folder, rel string }{
		{filepath.Join(c.Root, "a"), "w", c.Root, "a"}, {c.Root, "r", c.Root, "."}, {filepath.Join(far, "x"), "r", far, "x"}, {filepath.Join(far, "x"), "w", "", ""},
		{filepath.Join(c.Root, "sub", "x"), "r", filepath.Join(c.Root, "sub"), "x"}, {filepath.Join(c.Root, "sub", "x"), "w", c.Root, "sub/x"},
		{filepath.Join(c.Root, "one"), "r", c.Root, "one"}, {single, "r", filepath.Dir(single), "single"}, {single + "/x", "r", "", ""}, {single + "2", "r", "", ""},
		{"/write/x", "w", "/write", "x"}, {"/write/x", "r", "", ""}, {"/writer", "w", "", ""}, {"/", "r", "", ""}, {c.Root + "x", "r", "", ""},
	} {
		folder, rel, ok := g.Reach(row.path, row.access)
		if folder != row.folder || rel != row.rel || ok != (row.folder != "") {
			t.Errorf("%s, %s: %q %q %v", row.path, row.access, folder, rel, ok)
		}
	}
}

// TestSerialize: questions come one at a time, in order, with who asks; one whose answer is known by then does not come, and
// one that is no longer wanted does not hold up the others.
func TestSerialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan permit.PromptRequest)
		said := make(chan permit.Decision)
		p := prompterFunc(func(_ context.Context, r permit.PromptRequest) (permit.Decision, error) {
			open <- r
			return <-said, nil
		})
		g := gate(t, project(t, "ask", nil, nil), permit.Serialize(p))
		ask := func(ctx context.Context, text, source string) chan error {
			done := make(chan error, 1)
			go func() {
				r := command(text)
				r.Source = source
				done <- g.Check(ctx, r)
			}()
			synctest.Wait()
			return done
		}
		a := ask(t.Context(), "one", "alice")
		if r := <-open; r.Source != "alice" || r.Detail != "one" || r.Access != "x" || r.Verb != "one" || r.PersistTool != "bash" || r.PersistKey != "one" {
			t.Errorf("asked %+v", r)
		}
		same := ask(t.Context(), "one", "bob")
		gone, cancel := context.WithCancelCause(t.Context())
		c := ask(gone, "three", "carol")
		d := ask(t.Context(), "four", "dave")
		cancel(errors.New("left"))
		if err := <-c; err == nil || !strings.Contains(err.Error(), "left") {
			t.Errorf("carol: %v", err)
		}
		said <- permit.Session
		if err := errors.Join(<-a, <-same); err != nil {
			t.Error(err)
		}
		if r := <-open; r.Source != "dave" {
			t.Errorf("asked %+v", r)
		}
		said <- permit.Deny
		if err := <-d; !errors.Is(err, permit.ErrDenied) {
			t.Errorf("dave: %v", err)
		}
	})
}

type prompterFunc func(context.Context, permit.PromptRequest) (permit.Decision, error)

func (f prompterFunc) AskApproval(ctx context.Context, r permit.PromptRequest) (permit.Decision, error) {
	return f(ctx, r)
}

// TestPlanRequired: effects wait for a plan, whatever the rules say; reads do not.
func TestPlanRequired(t *testing.T) {
	c := project(t, "yolo", []string{"*"}, nil)
	c.PlanMode = "required"
	g := gate(t, c, nil)
	r := command("make")
	if err := g.Check(t.Context(), r); !errors.Is(err, permit.ErrDenied) || !strings.Contains(err.Error(), "record_plan") {
		t.Errorf("got %v", err)
	}
	if err := g.Check(t.Context(), permit.Request{Tool: "read_file", Kind: permit.Path, Detail: c.Root, Effect: permit.Read}); err != nil {
		t.Error(err)
	}
	g.Planned("")
	if err := g.Check(t.Context(), r); err != nil {
		t.Error(err)
	}
	if r.Session = "other"; g.Check(t.Context(), r) == nil {
		t.Error("a plan of one session counts for another")
	}
	g.Replan("")
	if r.Session = ""; g.Check(t.Context(), r) == nil {
		t.Error("an earlier plan still counts")
	}
}

// TestSetMode: a mode that there is comes into force at once.
func TestSetMode(t *testing.T) {
	g := gate(t, project(t, "ask", nil, nil), nil)
	if err := g.SetMode("fast"); err == nil || g.Mode() != "ask" {
		t.Errorf("got %v, %s", err, g.Mode())
	}
	if err := g.SetMode("yolo"); err != nil || g.Mode() != "yolo" || g.Check(t.Context(), command("make")) != nil {
		t.Errorf("got %v, %s", err, g.Mode())
	}
	for _, c := range []*conf.Config{nil, {Version: 2}} {
		if _, err := permit.New(c, nil); err == nil {
			t.Errorf("%v makes a gate", c)
		}
	}
}

// FuzzCommand: no text upsets the gate, and what a deny rule forbids it forbids wherever it stands.
func FuzzCommand(f *testing.F) {
	for _, text := range destroys {
		f.Add(text)
	}
	f.Add("ls -l | wc; echo $(date)")
	c := project(f, "yolo", nil, []string{"bash:forbidden *"})
	g := gate(f, c, nil)
	ask := gate(f, project(f, "ask", []string{"bash:fine*"}, nil), nil)
	f.Fuzz(func(t *testing.T, text string) {
		_ = g.Check(t.Context(), command(text))
		_ = ask.Check(t.Context(), command(text))
		if strings.ContainsAny(text, "'\\\x00") || strings.Contains(text, "<<") || len(text) > 1000 {
			return
		}
		for _, form := range []string{"forbidden x; %s", "sh -c '%s\nforbidden x'", "( forbidden x )\n%s"} {
			if err := g.Check(t.Context(), command(fmt.Sprintf(form, text))); err == nil {
				t.Errorf(form+" passes", text)
			}
		}
	})
}
