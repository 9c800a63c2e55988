// Package weir is the Go client of Weir.
//
// A Client holds the connection to a node group and is safe for concurrent use:
//
//	c, err := weir.Dial("127.0.0.1:7711")
//	defer c.Close()
//	answer, err := c.Get(ctx, "wordcount.counts", weir.Key("whale"), weir.ReadOptions{})
//
// Calls that fail because no server answered, or because it asked for a retry, are made again with a growing pause until
// Config.RetryFor has passed or the context ends; calls that must not be made twice are not. Errors of the server are
// rebuilt whole: errors.As finds a *dataflow.Error with its reason, hint and violations, and CutOf finds the cut that an
// answer without a row carries.
//
// A Client needs one address. It asks the group where its other nodes are (Config.NoDiscovery turns that off), keeps to one
// node while that answers, and goes to another when it does not, or says that it lags behind: calls that may be made twice,
// producers and watches go on there. A Producer sends the rows of each shard to the node that leads the shard, where it can.
//
// A Client remembers the newest cut that it has seen of each pipeline and never reads an older one (G3), whichever node
// answers.
//
// A Producer sends many rows exactly once (P8): see OpenProducer. Append sends a few.
//
// What it is not: a Client has no cache of rows and no connection pool; one connection carries many calls.
package weir
