package main

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/apzuk3/agentd/client"
)

const (
	// maxFiles is the protocol's.
	maxFiles = 64
	// maxFile bounds a file of a prompt, in bytes; what a daemon takes of all of
	// them is its own affair.
	maxFile = 64 << 20
)

// typed is a file with its type: image/png=FILE.
var typed = regexp.MustCompile(`^((?:application|audio|image|text|video)/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*)=(.+)$`)

// remote is a file that the model's provider fetches.
var remote = regexp.MustCompile(`^(https?|gs)://.`)

// types are those of files that models read, by the ends of their names: what a
// system knows of them differs.
var types = map[string]string{
	".csv":  "text/csv",
	".flac": "audio/flac",
	".gif":  "image/gif",
	".heic": "image/heic",
	".html": "text/html",
	".jpeg": "image/jpeg",
	".jpg":  "image/jpeg",
	".json": "application/json",
	".m4a":  "audio/mp4",
	".md":   "text/markdown",
	".mov":  "video/quicktime",
	".mp3":  "audio/mpeg",
	".mp4":  "video/mp4",
	".ogg":  "audio/ogg",
	".pdf":  "application/pdf",
	".png":  "image/png",
	".txt":  "text/plain",
	".wav":  "audio/wav",
	".webm": "video/webm",
	".webp": "image/webp",
	".xml":  "text/xml",
}

// parts are the files that go with a prompt.
func parts(names []string) ([]client.Part, error) {
	if len(names) > maxFiles {
		return nil, usage("--file: %d files are too many, at most %d go with a prompt", len(names), maxFiles)
	}
	var out []client.Part
	for _, name := range names {
		p, err := part(name)
		if err != nil {
			return nil, usage("--file %s: %w", name, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// part is a file, or the URI of one.
func part(name string) (client.Part, error) {
	kind := ""
	if m := typed.FindStringSubmatch(name); m != nil && !isFile(name) {
		kind, name = m[1], m[2]
	}
	if remote.MatchString(name) {
		u, err := url.Parse(name)
		if err != nil {
			return client.Part{}, err
		}
		if kind == "" {
			kind = byName(path.Ext(u.Path))
		}
		if kind == "" {
			return client.Part{}, errors.New("the type of this file is not known: name it, as in image/png=" + name)
		}
		return client.FileURI(kind, name), nil
	}
	data, err := readFile(name)
	if err != nil {
		return client.Part{}, err
	}
	if kind == "" {
		kind = byName(filepath.Ext(name))
	}
	if kind == "" {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(data))
	}
	if kind == "application/octet-stream" {
		return client.Part{}, errors.New("the type of this file is not known: name it, as in image/png=" + name)
	}
	return client.Inline(kind, data), nil
}

// byName is the type of files of such names; "" is not known.
func byName(ext string) string {
	ext = strings.ToLower(ext)
	if kind, ok := types[ext]; ok {
		return kind
	}
	kind, _, _ := mime.ParseMediaType(mime.TypeByExtension(ext))
	return kind
}

// readFile reads a file of a prompt.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, errors.New("the file is empty")
	case len(data) > maxFile:
		return nil, fmt.Errorf("the file has more than %d bytes", maxFile)
	}
	return data, nil
}
