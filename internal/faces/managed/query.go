package managed

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// query reads the parameters of a request and keeps the first thing that is wrong with them.
type query struct {
	values url.Values
	asked  map[string]bool
	first  error
}

func queryOf(r *http.Request) *query {
	q := &query{asked: map[string]bool{"beta": true}}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		q.first = badf("the query cannot be read: %v", err)
	}
	return q
}

func (q *query) failf(format string, args ...any) {
	if q.first == nil {
		q.first = badf(format, args...)
	}
}

// text returns a parameter that may be there once.
func (q *query) text(name string) string {
	q.asked[name] = true
	if n := len(q.values[name]); n > 1 {
		q.failf("the parameter %s is there %d times, want once", name, n)
	}
	return q.values.Get(name)
}

// all returns a parameter that may be there several times, with [] behind its name or without.
func (q *query) all(name string, known func(string) bool, want string) []string {
	q.asked[name], q.asked[name+"[]"] = true, true
	all := slices.Concat(q.values[name], q.values[name+"[]"])
	for _, v := range all {
		if !known(v) {
			q.failf("the parameter %s is %.80q, want %s", name, v, want)
		}
	}
	return all
}

// number returns a whole number from 1 on, another one if the parameter is left out.
func (q *query) number(name string, most, other int64) int64 {
	text := q.text(name)
	if text == "" {
		return other
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		q.failf("the parameter %s is %.40q, want a whole number from 1 to %d", name, text, most)
	}
	return n
}

func (q *query) flag(name string) bool {
	text := q.text(name)
	if text == "" {
		return false
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		q.failf("the parameter %s is %.40q, want true or false", name, text)
	}
	return b
}

// one returns one of few values, the first one if the parameter is left out.
func (q *query) one(name string, of ...string) string {
	text := q.text(name)
	if text == "" {
		return of[0]
	}
	if !slices.Contains(of, text) {
		q.failf("the parameter %s is %.40q, want %s", name, text, alternatives(of))
	}
	return text
}

// span is a span of time. Its ends may be zero.
type span struct{ gt, gte, lt, lte time.Time }

// created reads which times of creation are asked for. names are those that the route knows.
func (q *query) created(names ...string) (s span) {
	for _, name := range names {
		at := map[string]*time.Time{"gt": &s.gt, "gte": &s.gte, "lt": &s.lt, "lte": &s.lte}[name]
		param := "created_at[" + name + "]"
		text := q.text(param)
		if text == "" {
			continue
		}
		var err error
		if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			q.failf("the parameter %s is %.40q, want a time such as 2026-01-02T15:04:05Z", param, text)
		}
	}
	return s
}

// has reports whether a time is in the span.
func (s span) has(t time.Time) bool {
	return (s.gt.IsZero() || t.After(s.gt)) && (s.gte.IsZero() || !t.Before(s.gte)) &&
		(s.lt.IsZero() || t.Before(s.lt)) && (s.lte.IsZero() || !t.After(s.lte))
}

// done refuses parameters that nobody has asked for: what one of them selects would be missing.
func (q *query) done() error {
	var unknown []string
	for name := range q.values {
		if !q.asked[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		q.failf("the parameter %.80q is not known here: leave it out", unknown[0])
	}
	return q.first
}
