package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// profile runs each workload again and again while agentd writes a profile of where its time goes.
func (b *bench) profile(ctx context.Context, chosen []workload, columns []kind) error {
	if err := os.MkdirAll(b.profiles, 0o750); err != nil {
		return err
	}
	for _, w := range chosen {
		for _, k := range columns {
			if k == floor || k == adk {
				continue
			}
			if err := b.profileOne(ctx, w, k); err != nil {
				return fmt.Errorf("%s, %s: %w", w.name, k, err)
			}
		}
	}
	return nil
}

func (b *bench) profileOne(ctx context.Context, w workload, k kind) error {
	t, err := b.start(ctx, k, b.wire)
	if err != nil {
		return errors.Join(err, t.stop())
	}
	// Once, so that what the start takes is not in it.
	if _, err := w.run(ctx, b, t); err != nil {
		return errors.Join(err, t.stop())
	}
	name := filepath.Join(b.profiles, w.name+"-"+k.flag()+".pprof")
	done := make(chan error, 1)
	go func() {
		done <- fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", t.AdminURL, b.seconds), name)
	}()
	for {
		if _, err := w.run(ctx, b, t); err != nil {
			return errors.Join(err, t.stop(), <-done)
		}
		select {
		case err := <-done:
			fmt.Fprintln(os.Stderr, name)
			return errors.Join(err, t.stop())
		default:
		}
	}
}

// fetch writes what a URL serves into a file.
func fetch(ctx context.Context, url, name string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, resp.Status, body)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(name, body, 0o600)
}
