package main

import (
	"errors"
	"fmt"
	"path/filepath"
)

// databaseFile is the database within the folder of --data.
const databaseFile = "agentd.db"

// eventLogFlags turn on the event log. The last two are the words that other agents have for it.
type eventLogFlags struct {
	Eventlog      bool   `help:"${serve_eventlog}"`
	SessionDB     bool   `name:"session-db" help:"The same as --eventlog."`
	SessionDBPath string `name:"session-db-path" placeholder:"PATH" help:"${serve_session_db_path}"`
}

// on reports whether there is an event log.
func (f *eventLogFlags) on() bool { return f.Eventlog || f.SessionDB || f.SessionDBPath != "" }

// folder is the folder of the database, of what --data and --store say.
func (f *eventLogFlags) folder(data, store string) (string, error) {
	path := f.SessionDBPath
	if path == "" {
		return data, nil
	}
	switch name := filepath.Base(path); {
	case store != "":
		return "", errors.New("--session-db-path names a folder, and --store a database of PostgreSQL: leave out one " +
			"of them; --eventlog is enough")
	case name == databaseFile:
		path = filepath.Dir(path)
	case filepath.Ext(name) == ".db":
		return "", fmt.Errorf("--session-db-path is %s: the database is %s in a folder, so name %s, or its folder",
			path, databaseFile, filepath.Join(filepath.Dir(path), databaseFile))
	}
	if data != "" && filepath.Clean(data) != filepath.Clean(path) {
		return "", fmt.Errorf("--session-db-path is in %s and --data is %s: leave out one of them", path, data)
	}
	return path, nil
}
