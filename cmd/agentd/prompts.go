package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/client/mcp"
	"github.com/apzuk3/agentd/internal/chat"
)

// serverPrompts are the prompts of MCP servers, as commands of a chat.
type serverPrompts []*mcp.Server

// prompts are those of the servers of the pack, nil if there are none.
func (k *pack) prompts() chat.Prompts {
	if k == nil || len(k.servers) == 0 {
		return nil
	}
	return serverPrompts(k.servers)
}

// Names is that of chat.Prompts.
func (s serverPrompts) Names() (names []string) {
	for _, server := range s {
		for _, p := range server.Prompts() {
			names = append(names, server.Name+":"+p.Name)
		}
	}
	return names
}

// Prompt is that of chat.Prompts. Arguments are NAME=VALUE; a prompt of one argument takes all as that.
func (s serverPrompts) Prompt(ctx context.Context, server, name, arguments string) (string, error) {
	for _, one := range s {
		if one.Name != server {
			continue
		}
		for _, p := range one.Prompts() {
			if p.Name != name {
				continue
			}
			args := map[string]string{}
			for word := range strings.FieldsSeq(arguments) {
				if key, value, ok := strings.Cut(word, "="); ok {
					args[key] = value
				}
			}
			if len(p.Arguments) == 1 && args[p.Arguments[0].Name] == "" && arguments != "" {
				args = map[string]string{p.Arguments[0].Name: arguments}
			}
			text, _, err := one.Prompt(ctx, name, args)
			return text, err
		}
	}
	return "", fmt.Errorf("there is no such prompt; there are: %s", strings.Join(s.Names(), ", "))
}
