package resp

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// handler is a command. As in Redis, arity counts its words, the name among them, and -n means at least n.
type handler struct {
	name  string // lower case
	arity int
	// first, last and step say which words are keys: last counts from the end when it is negative. 0 = none.
	first, last, step int
	summary           string
	run               func(c *conn, ctx context.Context, args [][]byte)
}

// listed is a command of the table.
type listed struct {
	handler
	quick bool // others wait for its answer: it takes no longer than a few rows do, if it waits for nothing itself
}

// commandTable returns the commands by name, and the names in order.
func commandTable() (byName map[string]*listed, names []string) {
	byName = make(map[string]*listed)
	for _, group := range [][]handler{readCommands(), hashCommands(), keyspaceCommands(), connectionCommands(), serverCommands(), weirCommands()} {
		for _, h := range group {
			byName[h.name] = &listed{handler: h}
			names = append(names, h.name)
		}
	}
	for _, name := range strings.Fields(writeCommands) {
		byName[name] = &listed{handler: handler{name: name, arity: -1, run: func(c *conn, _ context.Context, _ [][]byte) {
			c.out.refuse("READONLY", "You can't write against a read only replica. The tables are what the pipeline makes of its streams: append rows, with weir ingest, gRPC or HTTP")
		}}}
	}
	for _, name := range strings.Fields(quickCommands) {
		byName[name].quick = true
	}
	slices.Sort(names)
	return byName, names
}

// quickCommands may be answered while other connections wait (R6).
const quickCommands = "get mget strlen exists touch type ttl pttl expiretime pexpiretime hgetall hget hmget hkeys hvals hlen hexists hstrlen " +
	"ping echo select readonly"

// writeCommands are refused as a replica of Redis refuses them, so that clients see that it is the write that is wrong.
const writeCommands = "append bitfield bitop blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin copy decr decrby del expire expireat " +
	"flushall flushdb geoadd georadius georadiusbymember geosearchstore getdel getex getset hdel hincrby hincrbyfloat hmset hset hsetnx incr incrby incrbyfloat linsert " +
	"lmove lmpop lpop lpush lpushx lrem lset ltrim migrate move mset msetnx persist pexpire pexpireat pfadd pfmerge psetex rename " +
	"renamenx restore rpop rpoplpush rpush rpushx sadd sdiffstore set setbit setex setnx setrange sinterstore smove sort spop srem " +
	"sunionstore swapdb unlink xack xadd xautoclaim xclaim xdel xgroup xsetid xtrim zadd zdiffstore zincrby zinterstore zmpop zpopmax zpopmin " +
	"zrangestore zrem zremrangebylex zremrangebyrank zremrangebyscore zunionstore"

// run answers one command.
func (c *conn) run(ctx context.Context, args [][]byte) {
	h := c.lookUpCommand(args[0])
	switch {
	case h == nil:
		c.refuseUnknown(args)
	case h.arity >= 0 && len(args) != h.arity, len(args) < -h.arity:
		c.refuseArity(h.name)
	default:
		h.run(c, ctx, args)
	}
}

// lookUpCommand finds a command whatever the case of its name.
func (c *conn) lookUpCommand(name []byte) *listed {
	var lower [32]byte
	if len(name) > len(lower) {
		return nil
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return c.s.commands[string(lower[:len(name)])]
}

func (c *conn) refuseUnknown(args [][]byte) {
	var with strings.Builder
	for _, a := range args[1:min(len(args), 4)] {
		fmt.Fprintf(&with, "'%s' ", abridge(a))
	}
	c.out.refuse("ERR", fmt.Sprintf("unknown command '%s', with args beginning with: %s", abridge(args[0]), with.String()))
}

func (c *conn) refuseArity(name string) {
	c.out.refuse("ERR", fmt.Sprintf("wrong number of arguments for '%s' command", name))
}

// word returns an argument that is a keyword, in lower case.
func word(b []byte) string { return strings.ToLower(string(b)) }
