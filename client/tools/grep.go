package tools

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
)

const (
	// maxMatch is how much of a line that matches is returned, in bytes.
	maxMatch = 1 << 10
	// maxLine is how much of a line is looked at.
	maxLine = 1 << 20
)

type grepIn struct {
	Pattern string `json:"pattern" jsonschema:"a regular expression, in the syntax of RE2"`
	Path    string `json:"path,omitempty" jsonschema:"the file or folder to search; the project's if it is missing"`
}

type grepOut struct {
	Matches   []match `json:"matches"`
	Truncated bool    `json:"truncated,omitempty"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

func (r *Registry) grep(ctx context.Context, in grepIn) (*grepOut, error) {
	if in.Pattern == "" {
		return nil, errors.New("the pattern is empty")
	}
	re, err := regexp.Compile(in.Pattern)
	if err != nil {
		return nil, fmt.Errorf("the pattern is no regular expression of RE2: %w", err)
	}
	out := &grepOut{Matches: []match{}}
	room := newList(r.cfg.Cap("grep", largeText))
	err = r.walk(ctx, "grep", in.Path, "", func(p *place) (bool, error) {
		file, _, err := r.openFile(p)
		if err != nil {
			return true, nil // it has gone, or is not to be read
		}
		defer func() { _ = file.Close() }()
		full, err := matches(ctx, re, file, func(line int, text string) bool {
			if !room.fits(p.name, text) {
				return false
			}
			out.Matches = append(out.Matches, match{valid([]byte(p.name)), line, text})
			return true
		})
		out.Truncated = full
		return !full, err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// matches calls take for each line that matches until it returns false, which full reports. A binary file has no lines.
func matches(
	ctx context.Context, re *regexp.Regexp, from io.Reader, take func(int, string) bool,
) (full bool, err error) {
	in := bufio.NewReaderSize(from, 64<<10)
	if head, _ := in.Peek(sniff); !textual(head) {
		return false, nil
	}
	var line []byte
	read := 0
	for number := 1; ; {
		piece, err := in.ReadSlice('\n')
		if read += len(piece); read > maxScan || !textual(piece) {
			return false, nil // it is no text after all, or larger than what is searched
		}
		if len(line)+len(piece) <= maxLine {
			line = append(line, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		if (err == nil || len(line) > 0) && re.Match(line) && !take(number, shown(line)) {
			return true, nil
		}
		if err != nil {
			return false, nil //nolint:nilerr // what cannot be read has no more lines
		}
		line = line[:0]
		if number++; number%1000 == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// shown is a line as it is returned.
func shown(line []byte) string {
	if len(line) <= maxMatch {
		return valid(line)
	}
	return valid(wholeRunes(line[:maxMatch])) + fmt.Sprintf(" [cut: %d bytes in all]", len(line))
}
