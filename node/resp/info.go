package resp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// redisVersion is the version of Redis whose replies to these commands are given. Clients choose what they send by it.
const redisVersion = "7.0.0"

func serverCommands() []handler {
	return []handler{
		{"command", -1, 0, 0, 0, "COMMAND [COUNT | LIST | INFO name… | DOCS name…]", (*conn).command},
		{"config", -2, 0, 0, 0, "CONFIG GET pattern…", (*conn).config},
		{"info", -1, 0, 0, 0, "The server, its pipelines and their newest cuts", (*conn).info},
		{"time", 1, 0, 0, 0, "Seconds since 1970, and microseconds", func(c *conn, _ context.Context, _ [][]byte) {
			now := time.Now()
			c.out.array(2)
			c.out.bulkString(fmt.Sprint(now.Unix()))
			c.out.bulkString(fmt.Sprint(now.Nanosecond() / 1000))
		}},
	}
}

func (c *conn) command(_ context.Context, args [][]byte) {
	sub := ""
	if len(args) > 1 {
		sub = word(args[1])
	}
	switch sub {
	case "":
		c.out.array(len(c.s.names))
		for _, name := range c.s.names {
			c.commandInfo(c.s.commands[name])
		}
	case "count":
		c.out.int(int64(len(c.s.names)))
	case "list":
		c.out.array(len(c.s.names))
		for _, name := range c.s.names {
			c.out.bulkString(name)
		}
	case "info":
		c.out.array(len(args) - 2)
		for _, name := range args[2:] {
			h := c.lookUpCommand(name)
			if h == nil {
				c.out.null()
				continue
			}
			c.commandInfo(h)
		}
	case "docs":
		names := c.s.names
		if len(args) > 2 {
			names = nil
			for _, name := range args[2:] {
				if h := c.lookUpCommand(name); h != nil && h.summary != "" {
					names = append(names, h.name)
				}
			}
		}
		c.out.pairs(len(names))
		for _, name := range names {
			c.out.bulkString(name)
			c.out.pairs(2)
			c.out.bulkString("summary")
			c.out.bulkString(c.s.commands[name].summary)
			c.out.bulkString("group")
			c.out.bulkString("generic")
		}
	default:
		c.out.refuse("ERR", fmt.Sprintf("unknown subcommand '%s'. COMMAND has COUNT, LIST, INFO and DOCS here", abridge(args[1])))
	}
}

func (c *conn) commandInfo(h *listed) {
	c.out.array(6)
	c.out.bulkString(h.name)
	c.out.int(int64(h.arity))
	if h.summary == "" {
		c.out.array(1)
		c.out.simple("write")
	} else {
		c.out.array(1)
		c.out.simple("readonly")
	}
	c.out.int(int64(h.first))
	c.out.int(int64(h.last))
	c.out.int(int64(h.step))
}

// config answers what clients and tools ask for, with what is true here of the setting's name.
func (c *conn) config(_ context.Context, args [][]byte) {
	if word(args[1]) != "get" || len(args) < 3 {
		c.out.refuse("ERR", "CONFIG has GET here, with a pattern; the settings of a server are its flags (weir server --help)")
		return
	}
	settings := [...][2]string{
		{"appendonly", "no"}, {"databases", "2"}, {"maxclients", fmt.Sprint(c.s.cfg.MaxConns)}, {"maxmemory", "0"},
		{"proto-max-bulk-len", fmt.Sprint(maxCommand)}, {"save", ""}, {"timeout", "0"},
	}
	var found [][2]string
	for _, s := range settings {
		if slices.ContainsFunc(args[2:], func(p []byte) bool { return globMatch(word(p), s[0]) }) {
			found = append(found, s)
		}
	}
	c.out.pairs(len(found))
	for _, s := range found {
		c.out.bulkString(s[0])
		c.out.bulkString(s[1])
	}
}

// info is INFO [section…].
func (c *conn) info(ctx context.Context, args [][]byte) {
	var b strings.Builder
	for _, s := range [...]struct {
		name  string
		write func(*conn, context.Context, *strings.Builder) error
	}{
		{"Server", (*conn).infoServer}, {"Clients", (*conn).infoClients}, {"Stats", (*conn).infoStats},
		{"Replication", (*conn).infoReplication}, {"Keyspace", (*conn).infoKeyspace}, {"Weir", (*conn).infoWeir},
	} {
		wanted := len(args) == 1 || slices.ContainsFunc(args[1:], func(a []byte) bool {
			w := word(a)
			return w == "all" || w == "default" || w == "everything" || w == strings.ToLower(s.name)
		})
		if !wanted {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", s.name)
		if err := s.write(c, ctx, &b); err != nil {
			c.out.fail(err)
			return
		}
	}
	c.out.bulkString(b.String())
}

func (c *conn) infoServer(_ context.Context, b *strings.Builder) error {
	fmt.Fprintf(b, "redis_version:%s\r\nredis_mode:standalone\r\nweir_version:%s\r\nuptime_in_seconds:%d\r\n",
		redisVersion, c.s.cfg.Version, int64(time.Since(c.s.began).Seconds()))
	return nil
}

func (c *conn) infoClients(_ context.Context, b *strings.Builder) error {
	fmt.Fprintf(b, "connected_clients:%d\r\nmaxclients:%d\r\n", c.s.connections(), c.s.cfg.MaxConns)
	return nil
}

func (c *conn) infoStats(_ context.Context, b *strings.Builder) error {
	fmt.Fprintf(b, "total_connections_received:%d\r\ntotal_commands_processed:%d\r\n", c.s.accepted.Load(), c.s.processed.Load())
	return nil
}

func (c *conn) infoReplication(_ context.Context, b *strings.Builder) error {
	b.WriteString("role:slave\r\nslave_read_only:1\r\nconnected_slaves:0\r\n")
	return nil
}

func (c *conn) infoKeyspace(ctx context.Context, b *strings.Builder) error {
	tables, err := c.s.cfg.Backend.Tables(ctx)
	if err != nil {
		return err
	}
	var rows uint64
	for _, t := range tables {
		rows += t.Rows
	}
	for db := range 2 {
		fmt.Fprintf(b, "db%d:keys=%d,expires=0,avg_ttl=0\r\n", db, rows)
	}
	return nil
}

// infoWeir says of each pipeline which cut its committed reads come from, and how far that is behind.
func (c *conn) infoWeir(ctx context.Context, b *strings.Builder) error {
	cuts, err := c.s.cfg.Backend.Cuts(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "pipelines:%d\r\n", len(cuts))
	for _, k := range cuts {
		fmt.Fprintf(b, "pipeline_%s:state=%s,checkpoint=%d,incarnation=%d,age_ms=%d,behind_rows=%d,behind_ms=%d\r\n",
			k.Pipeline, k.State, k.Checkpoint, k.Incarnation, k.AgeMillis, k.BehindRows, k.BehindMillis)
	}
	return nil
}
