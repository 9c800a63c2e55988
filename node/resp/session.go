package resp

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/weirdb/weir/dataflow"
)

func connectionCommands() []handler {
	return []handler{
		{"ping", -1, 0, 0, 0, "PONG, or the word given", (*conn).ping},
		{"echo", 2, 0, 0, 0, "The word given", func(c *conn, _ context.Context, args [][]byte) { c.out.bulk(args[1]) }},
		{"quit", -1, 0, 0, 0, "Ends the connection", func(c *conn, _ context.Context, _ [][]byte) {
			c.out.ok()
			c.quit = true
		}},
		{"reset", 1, 0, 0, 0, "Makes the connection as it was at its beginning", func(c *conn, _ context.Context, _ [][]byte) {
			c.database, c.name, c.out.v3 = dataflow.ReadCommitted, "", false
			c.out.simple("RESET")
		}},
		{"select", 2, 0, 0, 0, "0 reads committed, 1 reads live", (*conn).selectDatabase},
		{"hello", -1, 0, 0, 0, "The server, and which version of the protocol is spoken", (*conn).hello},
		{"auth", -2, 0, 0, 0, "Refused: there are no passwords", (*conn).auth},
		{"client", -2, 0, 0, 0, "CLIENT ID | GETNAME | SETNAME | SETINFO | INFO | NO-EVICT | NO-TOUCH", (*conn).client},
		{"readonly", 1, 0, 0, 0, "Nothing: every connection reads only", func(c *conn, _ context.Context, _ [][]byte) { c.out.ok() }},
	}
}

func (c *conn) ping(_ context.Context, args [][]byte) {
	switch len(args) {
	case 1:
		c.out.simple("PONG")
	case 2:
		c.out.bulk(args[1])
	default:
		c.refuseArity("ping")
	}
}

func (c *conn) selectDatabase(_ context.Context, args [][]byte) {
	switch string(args[1]) {
	case "0":
		c.database = dataflow.ReadCommitted
	case "1":
		c.database = dataflow.ReadUncommitted
	default:
		c.out.refuse("ERR", "DB index is out of range: 0 reads committed, 1 reads live")
		return
	}
	c.out.ok()
}

const noPassword = "AUTH <password> called without any password configured for the default user: this version of Weir has no authentication"

func (c *conn) auth(context.Context, [][]byte) { c.out.refuse("ERR", noPassword) }

// hello is HELLO [version [AUTH user password] [SETNAME name]].
func (c *conn) hello(_ context.Context, args [][]byte) {
	v3, name := c.out.v3, c.name
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			v3 = false
		case "3":
			v3 = true
		default:
			if _, err := strconv.ParseInt(string(args[1]), 10, 64); err != nil {
				c.out.refuse("ERR", "Protocol version is not an integer or out of range")
				return
			}
			c.out.refuse("NOPROTO", "unsupported protocol version")
			return
		}
	}
	for rest := args[min(len(args), 2):]; len(rest) > 0; {
		switch option := word(rest[0]); {
		case option == "auth" && len(rest) >= 3:
			c.out.refuse("ERR", noPassword)
			return
		case option == "setname" && len(rest) >= 2:
			if !validName(rest[1]) {
				c.out.refuse("ERR", badName)
				return
			}
			name, rest = string(rest[1]), rest[2:]
		default:
			c.out.refuse("ERR", fmt.Sprintf("Syntax error in HELLO option '%s'", abridge(rest[0])))
			return
		}
	}
	c.out.v3, c.name = v3, name
	version := int64(2)
	if v3 {
		version = 3
	}
	c.out.pairs(7)
	c.out.bulkString("server")
	c.out.bulkString("redis") // what clients know how to speak to
	c.out.bulkString("version")
	c.out.bulkString(redisVersion)
	c.out.bulkString("proto")
	c.out.int(version)
	c.out.bulkString("id")
	c.out.int(int64(c.id))
	c.out.bulkString("mode")
	c.out.bulkString("standalone")
	c.out.bulkString("role")
	c.out.bulkString("replica") // which takes no writes
	c.out.bulkString("modules")
	c.out.array(0)
}

const badName = "Client names cannot contain spaces, newlines or special characters"

// maxName bounds a connection's name, which INFO and logs show.
const maxName = 256

func validName(b []byte) bool {
	return len(b) <= maxName && bytes.IndexFunc(b, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

func (c *conn) client(_ context.Context, args [][]byte) {
	sub := word(args[1])
	wrong := false
	switch sub {
	case "id":
		if wrong = len(args) != 2; !wrong {
			c.out.int(int64(c.id))
		}
	case "getname":
		if wrong = len(args) != 2; wrong {
			break
		}
		if c.name == "" {
			c.out.null()
			break
		}
		c.out.bulkString(c.name)
	case "setname":
		switch wrong = len(args) != 3; {
		case wrong:
		case !validName(args[2]):
			c.out.refuse("ERR", badName)
		default:
			c.name = string(args[2])
			c.out.ok()
		}
	case "info":
		if wrong = len(args) != 2; !wrong {
			c.out.bulkString(fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=%d resp=%d\n", c.id, c.nc.RemoteAddr(), c.nc.LocalAddr(), c.name, c.databaseNumber(), c.protocol()))
		}
	case "setinfo": // which library it is: taken, as nothing depends on it
		if wrong = len(args) != 4; !wrong {
			c.out.ok()
		}
	case "no-evict", "no-touch": // nothing is evicted
		if wrong = len(args) != 3; !wrong {
			c.out.ok()
		}
	default:
		c.out.refuse("ERR", fmt.Sprintf("unknown subcommand '%s'. CLIENT has ID, GETNAME, SETNAME, SETINFO, INFO, NO-EVICT and NO-TOUCH here", abridge(args[1])))
	}
	if wrong {
		c.refuseArity("client|" + sub)
	}
}

func (c *conn) databaseNumber() int {
	if c.database == dataflow.ReadUncommitted {
		return 1
	}
	return 0
}

func (c *conn) protocol() int {
	if c.out.v3 {
		return 3
	}
	return 2
}
