// Package nodetest runs a whole node inside a test: over a file system in memory, with its servers on free ports of the
// loopback interface, and with verbs for what tests do to a node.
//
//	n := nodetest.Open(t, nodetest.Options{})
//	n.Deploy("wordcount", sql)
//	token := n.Append("lines", `{"line":"call me Ishmael"}`)
//	n.WaitCommitted(token)
//	n.Crash(nodetest.LoseUnsynced)
//	rows := n.Query("SELECT * FROM wordcount.counts")
//
// A verb that the test relies on ends the test when it fails. To see an error, call the services themselves: Ingest,
// Queries, Pipelines, Cluster, HTTP.
//
// Crash is power loss: what had not been synced is gone, and the node that was running touches nothing that its successor
// reads. Restart stops the node in order first.
package nodetest
