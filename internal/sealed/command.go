package sealed

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	// commandTime is how long a command may take, commandBytes how much it may write.
	commandTime  = 30 * time.Second
	commandBytes = 64 << 10
	// complaintBytes is how much of what it writes to its standard error is reported.
	complaintBytes = 1 << 10
)

// runCommand gives a program bytes and returns what it writes.
func runCommand(ctx context.Context, program, verb string, in []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, complaint := &bounded{most: commandBytes}, &bounded{most: complaintBytes}
	cmd := exec.CommandContext(ctx, program, verb) //nolint:gosec // the operator's own program
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, complaint
	cmd.WaitDelay = time.Second // for what it has started and left
	err := cmd.Run()
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("it did not end within %v", commandTime)
	case err != nil:
		if text := hideKeys(string(complaint.text), in, out.text); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
	case out.over:
		err = fmt.Errorf("it has written more than %d bytes", commandBytes)
	case len(out.text) == 0:
		err = errors.New("it has written nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("encryption command %s %s: %w", program, verb, err)
	}
	return out.text, nil
}

// hideKeys returns a text unless it has keys, in any usual form.
func hideKeys(text string, keys ...[]byte) string {
	for _, key := range keys {
		for _, form := range []string{
			string(key), hex.EncodeToString(key), strings.TrimRight(base64.StdEncoding.EncodeToString(key), "="),
			strings.TrimRight(base64.URLEncoding.EncodeToString(key), "="),
		} {
			if len(form) < keyBytes { // no key
				continue
			}
			// As it is, too: what is no UTF-8 is lost when its case is changed.
			if strings.Contains(text, form) || strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
				return "what it says has a key and is not shown"
			}
		}
	}
	return strings.TrimSpace(text)
}

// bounded keeps what is written up to a size. It has no method but Write: io.Copy would use ReadFrom in its place.
type bounded struct {
	text []byte
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - len(b.text)
	b.over = b.over || len(p) > room
	b.text = append(b.text, p[:min(len(p), room)]...)
	return len(p), nil
}
