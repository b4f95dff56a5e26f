//go:build unix

package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/mcp"
)

// peers are the official servers, which scripts/mcp installs.
type peers struct {
	t    *testing.T
	home string // their node_modules, and the scripts of tools/mcp beside it
	dir  string // of what the servers keep
}

// stdio is the entry of a server that writes its process id to a file.
func (p *peers) stdio(name string, env map[string]string, args ...string) map[string]any {
	script := `echo $$ >"$0"; exec node "$@"`
	all := append([]string{"-c", script, filepath.Join(p.dir, name+".pid"),
		filepath.Join(p.home, "node_modules", ".bin", "mcp-server-"+name)}, args...)
	entry := map[string]any{"transport": "stdio", "command": "sh", "args": all}
	if env != nil {
		entry["env"] = env
	}
	return entry
}

// pid is the process of a server by stdio.
func (p *peers) pid(name string) int {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name+".pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	return number(p.t, strings.TrimSpace(string(text)))
}

// web starts the server everything over streamable HTTP, on this computer's own address.
func (p *peers) web() map[string]any {
	p.t.Helper()
	cmd := exec.Command("node", "--import", filepath.Join(p.home, "loopback.mjs"),
		filepath.Join(p.home, "node_modules", ".bin", "mcp-server-everything"), "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT=0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	port := make(chan string, 1)
	go func() { // ends with the server
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if at, ok := strings.CutPrefix(lines.Text(), "loopback: "); ok {
				port <- at
			}
		}
	}()
	select {
	case at := <-port:
		return map[string]any{"transport": "http", "url": "http://127.0.0.1:" + at + "/mcp"}
	case <-time.After(30 * time.Second):
		p.t.Fatal("the server over HTTP does not start")
		return nil
	}
}

// TestPeers has the tools of the official servers called in turns of a daemon: over both wires, and with one server that is
// killed in the middle of a call.
func TestPeers(t *testing.T) {
	home := os.Getenv("AGENTD_MCP_PEERS")
	if home == "" {
		t.Skip("scripts/mcp runs this test")
	}
	p := &peers{t: t, home: home, dir: t.TempDir()}
	folder := filepath.Join(p.dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(folder, "note.txt")
	servers := map[string]*mcp.Server{}
	for _, s := range build(t, map[string]any{
		"everything": p.stdio("everything", nil), "web": p.web(), "filesystem": p.stdio("filesystem", nil, folder),
		"memory": p.stdio("memory", map[string]string{"MEMORY_FILE_PATH": filepath.Join(p.dir, "memory.jsonl")}),
	}, nil) {
		if servers[s.Name] = s; s.Status != mcp.StatusOK {
			t.Fatalf("%s: %s: %v", s.Name, s.Status, s.Err)
		}
	}
	for _, name := range []string{"everything", "web"} {
		s := servers[name]
		gives(t, s, name+"_echo", map[string]any{"message": "hi"}, "Echo: hi")
		gives(t, s, name+"_get_sum", map[string]any{"a": 2, "b": 40}, "The sum of 2 and 40 is 42.")
		got := turn(t.Context(), t, s, name+"_get_structured_content", map[string]any{"location": "Chicago"})
		var weather struct{ Temperature float64 }
		if err := json.Unmarshal([]byte(got.Output), &weather); err != nil || weather.Temperature == 0 {
			t.Errorf("%s: structured content is %q: %v", name, got.Output, err)
		}
		image := turn(t.Context(), t, s, name+"_get_tiny_image", nil)
		if len(image.Parts) != 1 || image.Parts[0].MIMEType != "image/png" || len(image.Parts[0].Data) < 100 {
			t.Errorf("%s: the image is %.100q and %d parts", name, image.Output, len(image.Parts))
		}
		links := turn(t.Context(), t, s, name+"_get_resource_reference", map[string]any{"resourceType": "Text", "resourceId": 1})
		if links.Error != "" || !strings.Contains(links.Output, "Resource 1") {
			t.Errorf("%s: the resource is %q, %s", name, links.Output, links.Error)
		}
	}
	write := map[string]any{"path": note, "content": "noted"}
	if got := turn(t.Context(), t, servers["filesystem"], "filesystem_write_file", write); got.Error != "" {
		t.Errorf("write_file: %s", got.Error)
	}
	if text, err := os.ReadFile(note); err != nil || string(text) != "noted" {
		t.Errorf("note.txt is %q: %v", text, err)
	}
	fails(t, servers["filesystem"], "filesystem_read_text_file", map[string]any{"path": "/etc/passwd"}, "outside allowed")
	p.killed(servers, note)
}

// killed has one turn call three servers at once, of which one is killed: the model reads that its call may have happened, and
// has the results of the others. The next call starts the server again.
func (p *peers) killed(servers map[string]*mcp.Server, note string) {
	t := p.t
	t.Helper()
	entities := map[string]any{"entities": []any{map[string]any{"name": "Ann", "entityType": "person", "observations": []string{"tall"}}}}
	calls := map[string]any{
		"memory_create_entities": entities, "filesystem_read_text_file": map[string]any{"path": note},
		"web_echo": map[string]any{"message": "hi"},
	}
	var asked []any
	for name, args := range calls {
		asked = append(asked, map[string]any{"name": name, "args": args})
	}
	script, err := json.Marshal(map[string]any{"answers": []any{
		map[string]any{"calls": asked}, map[string]any{"when": map[string]any{}, "text": "done"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"caller": string(script)}})
	var opts []client.Option
	var of []client.AgentOption
	for name, s := range servers {
		opts, of = append(opts, client.WithAttachment(name, s.ToolSet())), append(of, client.AttachedTools(name))
	}
	pid := p.pid("memory")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // it takes the call, and does not come to answer it
		t.Fatal(err)
	}
	got := map[string]*client.ToolCallAnswered{}
	for event, err := range d.Client(opts...).Run(t.Context(), client.LLM("caller", "scripted/caller", of...), "go") {
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := event.Data.(*client.ToolCallAnswered); ok {
			if got[a.Name] = a; len(got) == 2 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	lost := got["memory_create_entities"]
	if lost == nil || !strings.Contains(lost.Error, "was lost during the call, which may have happened") {
		t.Errorf("the call of the killed server: %+v", lost)
	}
	for name, want := range map[string]string{"filesystem_read_text_file": "noted", "web_echo": "Echo: hi"} {
		if a := got[name]; a == nil || a.Error != "" || !strings.Contains(a.Output, want) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	read := turn(t.Context(), t, servers["memory"], "memory_read_graph", nil)
	if read.Error != "" || strings.Contains(read.Output, "Ann") { // nobody has repeated the call
		t.Errorf("the graph is %q, %s", read.Output, read.Error)
	}
	if p.pid("memory") == pid {
		t.Error("the killed server is not started again")
	}
	if made := turn(t.Context(), t, servers["memory"], "memory_create_entities", entities); made.Error != "" {
		t.Errorf("create_entities: %s", made.Error)
	}
	again := turn(t.Context(), t, servers["memory"], "memory_read_graph", nil)
	if strings.Count(again.Output, fmt.Sprintf("%q", "Ann")) != 1 {
		t.Errorf("the graph is %q, want Ann once", again.Output)
	}
}
