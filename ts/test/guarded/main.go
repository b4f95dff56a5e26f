// Command guarded is a daemon that asks who calls, for the tests of the TypeScript client: a
// request's bearer token is the name of its principal and, behind a slash, its role (caller, if
// there is none). It writes where it serves, as agentd does, and ends with its input.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/apzuk3/agentd/agentdhost"
)

var roles = map[string]agentdhost.Role{
	"": agentdhost.Caller, "observer": agentdhost.Observer, "operator": agentdhost.Operator,
}

func main() {
	scripts := flag.String("scripts", "", "the folder of the scripts")
	flag.Parse()
	if err := run(*scripts); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(scripts string) error {
	host, err := agentdhost.New(agentdhost.Config{
		Addr: "127.0.0.1:0", ScriptsDir: scripts, Authenticate: who, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"serving\",\"addr\":%q}\n", host.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends the input ends the daemon
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits for turns that run
	return host.Shutdown(ctx)
}

func who(r *http.Request) (agentdhost.Principal, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, role, _ := strings.Cut(token, "/")
	if _, known := roles[role]; !ok || name == "" || !known {
		return agentdhost.Principal{}, fmt.Errorf("no such bearer")
	}
	return agentdhost.Principal{ID: name, Role: roles[role]}, nil
}
