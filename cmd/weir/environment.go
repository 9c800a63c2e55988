package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// environment is what the process stands in. Tests put others in its place.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        func() []string
	getenv         func(string) string
	// program is how the user called us: printed commands begin with it, so that they work when pasted.
	program string
	// terminal reports whether stdin and stdout are a person's.
	terminal func() bool
	// raw makes the terminal pass on every key by itself, until restore.
	raw func() (restore func(), err error)
	// stderrTerminal reports whether progress on stderr is read by a person.
	stderrTerminal func() bool
	// notify subscribes to the signals that stop the program, and returns how to unsubscribe.
	notify func(chan<- os.Signal) (stop func())
	exit   func(code int)
}

func osEnv() *environment {
	isTerminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return &environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ, getenv: os.Getenv, program: os.Args[0],
		terminal: func() bool { return isTerminal(os.Stdin) && isTerminal(os.Stdout) },
		raw: func() (func(), error) {
			fd := int(os.Stdin.Fd())
			old, err := term.MakeRaw(fd)
			if err != nil {
				return nil, err
			}
			return func() { _ = term.Restore(fd, old) }, nil // nobody can do more about a terminal that is gone
		},
		stderrTerminal: func() bool { return isTerminal(os.Stderr) },
		notify: func(c chan<- os.Signal) func() {
			signal.Notify(c, os.Interrupt, syscall.SIGTERM)
			if !signal.Ignored(syscall.SIGHUP) { // under nohup it is
				signal.Notify(c, syscall.SIGHUP)
			}
			return func() { signal.Stop(c) }
		},
		exit: os.Exit,
	}
}
