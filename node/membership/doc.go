// Package membership keeps the nodes of a group and the members of its logs in agreement, and answers for all nodes.
//
// The meta log says who is in the group (meta.Member). The leader of each log brings that log's members to it, one change at
// a time (Next); the leader of the meta log marks a node active once it votes in all logs, and gone once it is in none. So a
// change that was begun goes on whoever leads, also after everything was restarted.
package membership
