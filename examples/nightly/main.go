// Nightly is a daemon that starts a job by itself, and a receiver that is told how it went: a schedule, and a webhook
// whose signature is verified. The job of this night runs at once.
package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/apzuk3/agentd/agentdhost"
	"github.com/apzuk3/agentd/client"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// message is what this receiver reads of a request.
type message struct {
	Type string `json:"type"`
	Data struct {
		SessionID string `json:"session_id"`
		Turn      struct {
			Status string `json:"status"`
			Output string `json:"output"`
		} `json:"turn"`
	} `json:"data"`
}

// receive serves a receiver on loopback, until the listener closes, and returns what is told, each fact once.
func receive(l net.Listener, secret string) <-chan message {
	told, seen := make(chan message, 16), make(chan map[string]bool, 1)
	seen <- map[string]bool{}
	srv := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
			if err != nil {
				http.Error(w, "send it again", http.StatusBadRequest)
				return
			}
			id, err := verify(secret, r.Header, body, time.Now())
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
			ids := <-seen
			defer func() { seen <- ids }()
			var m message
			if !ids[id] && json.Unmarshal(body, &m) == nil {
				told <- m
				ids[id] = true
			}
		}),
	}
	go func() { _ = srv.Serve(l) }()
	return told
}

// webhooks writes the operator's file.
func webhooks(dir, url, secret string) (string, error) {
	name := filepath.Join(dir, "webhooks.yaml")
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(secret), 0o600); err != nil {
		return "", err
	}
	text := "webhooks:\n  chat:\n    url: " + url + "\n    secret_file: " + filepath.Join(dir, "secret") +
		"\n    events: [turn.ended]\n    labels: {job: nightly}\n    content: true\n    allow: [127.0.0.1]\n"
	return name, os.WriteFile(name, []byte(text), 0o600)
}

func run() (err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nightly")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // it does not fail
	secret := "whsec_" + base64.StdEncoding.EncodeToString(raw)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	told := receive(l, secret)
	file, err := webhooks(dir, "http://"+l.Addr().String(), secret)
	if err != nil {
		return err
	}
	host, err := agentdhost.New(agentdhost.Config{Addr: "127.0.0.1:0", Webhooks: file})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Shutdown(ctx)) }()
	return job(ctx, client.New("http://"+host.Addr().String()), told)
}

// job has a report made each night and, in the same session, now.
func job(ctx context.Context, clnt *client.Client, told <-chan message) error {
	report := client.ScheduleDefinition{
		ID: "nightly", Cron: "30 2 * * *", Zone: "Europe/Berlin", SessionID: "reports",
		Agent: client.LLM("reporter", "echo"), Prompt: "All is quiet.", Labels: map[string]string{"job": "nightly"},
	}
	nightly, err := clnt.CreateSchedule(ctx, report)
	if err != nil {
		return err
	}
	fmt.Println("each night, next in", time.Until(nightly.NextTime).Round(time.Hour))
	report.ID, report.Cron, report.Zone, report.At = "tonight", "", "", time.Now()
	if _, err := clnt.CreateSchedule(ctx, report); err != nil {
		return err
	}
	m := <-told
	fmt.Printf("told: %s in %s: %s: %s\n", m.Type, m.Data.SessionID, m.Data.Turn.Status, m.Data.Turn.Output)
	return nil
}
