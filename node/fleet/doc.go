// Package fleet is how a node reaches the tasks of all nodes of its group.
//
// The node that leads the meta log drives them: a Fleet is the leader.Worker of its coordinators, which holds a link to
// every node, this one included. A link is one stream of calls and reports (weir.peer.v1.TaskService.Coordinate). When it
// breaks, or is silent for silence, the tasks at its other end count as lost: their pipelines begin a new incarnation on
// the nodes that lead the shards then. The tasks themselves do not depend on it: they go on, and the next coordinator
// attaches to them.
//
// What a node that only seems lost still does is fenced elsewhere: by the shards' logs, which take no delta of an ended
// incarnation (P2), and by the meta log (P4). So nothing here must be believed for an answer to be right.
//
// Every node reads live tables through it too: those of shards that it leads directly, others by a call to the node that
// runs them.
package fleet
