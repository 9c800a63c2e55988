package demo

import (
	"fmt"
	"net/url"
	"strings"
)

// introduce prints the SQL file and commands that work when pasted into another terminal.
func (d *demo) introduce(grpcAddr, httpAddr string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\ndeployed as pipeline %s; %d page views per second go into stream %s. Try in another terminal:\n\n",
		demoSQL, pipeline, d.cfg.Rate, stream)
	weir := func(args ...string) {
		b.WriteString("  " + quote(d.cfg.Program))
		for _, a := range append(args, "--addr", grpcAddr) {
			b.WriteString(" " + quote(a))
		}
		b.WriteByte('\n')
	}
	page := pages[3]
	weir("get", table, page)
	weir("get", table, page, "--isolation", "read-uncommitted")
	weir("query", "SELECT page, views FROM "+table+" ORDER BY views DESC LIMIT 3")
	weir("pipeline", "describe", pipeline)
	row := fmt.Sprintf("http://%s/v1/pipelines/%s/tables/by_page/rows/%s", httpAddr, pipeline, url.PathEscape(page))
	fmt.Fprintf(&b, "  curl '%s'\n  curl '%s?isolation=READ_UNCOMMITTED'\n\n", row, row)
	_, err := d.cfg.Out.Write([]byte(strings.ReplaceAll(b.String(), "\n", d.lineEnd())))
	return err
}

// lineEnd is what ends a line on a terminal in raw mode too.
func (d *demo) lineEnd() string {
	if d.cfg.Screen {
		return "\r\n"
	}
	return "\n"
}

// quote writes an argument as a shell reads it back.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
