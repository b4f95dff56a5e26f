package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/itchyny/gojq"

	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
)

const (
	// maxJSON is the largest JSON that is queried.
	maxJSON = 16 << 20
	// queryTime bounds a query, which may go on for ever.
	queryTime = 10 * time.Second
)

type jsonQueryIn struct {
	Query string `json:"query" jsonschema:"a query in the language of jq, such as .items[].name"`
	Path  string `json:"path,omitempty" jsonschema:"a JSON file"`
	JSON  string `json:"json,omitempty" jsonschema:"a JSON text"`
}

type jsonQueryOut struct {
	Results   []json.RawMessage `json:"results"`
	Count     int               `json:"count"`
	Truncated bool              `json:"truncated,omitempty"`
}

func (r *Registry) jsonQuery(ctx context.Context, in jsonQueryIn) (*jsonQueryOut, error) {
	if (in.Path == "") == (in.JSON == "") {
		return nil, errors.New("give either path or json")
	}
	query, err := gojq.Parse(in.Query)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	code, err := gojq.Compile(query) // without the environment and without modules
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	name, data := "json", []byte(in.JSON)
	if in.Path != "" {
		if name, data, err = r.jsonFile(ctx, in.Path); err != nil {
			return nil, err
		}
	}
	input, err := decodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON: %w", name, err)
	}
	ctx, stop := context.WithTimeoutCause(ctx, queryTime, fmt.Errorf("the query takes more than %s", queryTime))
	defer stop()
	out := &jsonQueryOut{Results: []json.RawMessage{}}
	room := newList(r.cfg.Cap("json_query", conf.OutputCap{}))
	for results := code.RunWithContext(ctx, input); ; out.Count++ {
		v, ok := results.Next()
		if !ok {
			return out, nil
		}
		if err, ok := v.(error); ok {
			if halt, ok := errors.AsType[*gojq.HaltError](err); ok && halt.Value() == nil {
				return out, nil
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("query: %w", err)
		}
		text, err := gojq.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("query: %w", err)
		}
		if !room.fits(string(text)) {
			if out.Count == 0 {
				return nil, fmt.Errorf("the first result has %d bytes, more than may be returned: ask for less of it",
					len(text))
			}
			out.Truncated = true
			return out, nil
		}
		out.Results = append(out.Results, text)
	}
}

func (r *Registry) jsonFile(ctx context.Context, path string) (string, []byte, error) {
	p, err := r.at(ctx, "json_query", path, permit.Read)
	if err != nil {
		return "", nil, err
	}
	defer p.close()
	f, _, err := r.openFile(p)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if len(data) > maxJSON {
		return "", nil, fmt.Errorf("%s has more than %d bytes", p.name, maxJSON)
	}
	return p.name, data, nil
}

// decodeJSON reads one JSON value; numbers keep their digits.
func decodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the JSON value")
	}
	return v, nil
}
