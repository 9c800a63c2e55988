package dataflow

import "time"

// Watch asks to follow a table.
type Watch struct {
	Pipeline, Table string
	Range           ScanRange // which keys; the zero value is all
	Isolation       Isolation
	// ChangesOnly leaves the snapshot out: what changes after the newest cut.
	ChangesOnly bool
	// Resume goes on exactly after this cut; nil begins anew.
	Resume *SessionToken
	// Min, Session and MaxWait are those of ReadOptions, for the cut that the watch begins with. Resume goes before Session.
	Min     Positions
	Session *SessionToken
	MaxWait time.Duration
	// MaxStaleness ends the watch with CUT_TOO_OLD when what it has said may lack rows that were acknowledged longer ago than
	// this; 0 = never.
	MaxStaleness time.Duration
	// NumbersAsText writes BIGINT and NUMERIC values as JSON strings.
	NumbersAsText bool
}

// WatchChange is what happened to one row. It is shared by many watchers and never changed.
type WatchChange struct {
	Key        []byte       // a JSON object of the key columns
	Row        []byte       // the whole row as a JSON object; nil = it was deleted
	Checkpoint CheckpointID // of the cut that it belongs to; 0 of a live change
}

// WatchEvent is a part of what a watch has to say. Changes of one cut may come in several events; EndOfCut closes them, so
// that they may be applied as one.
type WatchEvent struct {
	Changes []WatchChange
	// Snapshot says that the changes are rows of a first picture: at its EndOfCut they are all that is watched.
	Snapshot bool
	EndOfCut bool
	// Cut is set with EndOfCut, RolledBack and live changes.
	Cut *Cut
	// RolledBack says, of a live watch, that an incarnation has ended with what it had not committed.
	RolledBack bool
}
