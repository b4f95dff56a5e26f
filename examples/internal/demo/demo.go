// Package demo is what the examples have in common: a server to talk to. A program
// of your own needs none of it.
package demo

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/apzuk3/agentd/agentdtest"
)

// Example is what an example is given.
type Example struct {
	// URL is the server's.
	URL string
	// Model is the name of the agents' model.
	Model string
	// Project is a folder with an MCP server; "" unless MainWithProject runs the example.
	Project string
}

// Main runs an example and exits with 1 if it fails. With -addr it uses the
// agentd there, else one of its own on loopback; with -model the agents use
// that model, else they say the lines of the script.
func Main(script string, run func(context.Context, Example) error) {
	addr := flag.String("addr", "", "URL of a running agentd, such as http://localhost:8080; empty starts one")
	model := flag.String("model", "scripted/example", "the agents' model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx, Example{URL: *addr, Model: *model}, script, run)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// MainWithProject is Main for an example that needs a folder with an MCP server.
func MainWithProject(script string, run func(context.Context, Example) error) {
	if serveClock() {
		return
	}
	Main(script, func(ctx context.Context, e Example) error {
		dir, err := project()
		defer func() { _ = os.RemoveAll(dir) }()
		if err != nil {
			return err
		}
		e.Project = dir
		return run(ctx, e)
	})
}

func start(ctx context.Context, e Example, script string, run func(context.Context, Example) error) error {
	if e.URL == "" {
		d, err := agentdtest.New(agentdtest.Config{
			Addr:    "127.0.0.1:0",
			Scripts: map[string]string{"example": script},
		})
		if err != nil {
			return err
		}
		defer func() {
			if err := d.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "stop the server:", err)
			}
		}()
		e.URL = d.URL
	}
	return run(ctx, e)
}
