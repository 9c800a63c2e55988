// Package membership keeps the nodes of a group and the members of its logs in agreement, decides who votes in which log and who
// leads it, and answers for all nodes.
//
// Every node is a member of every log and follows it. The meta log says who is in the group (meta.Member) and who is to vote where
// (meta.Placement). The leader of each log brings that log's members to it, one change at a time (Next). The leader of the meta log
// decides who votes (Place), which also replaces a node that is silent, has the leads moved (Leads), and marks a node active once it
// is up to date and votes where it is to, and gone once it is in no log. So a change that was begun goes on whoever leads,
// also after everything was restarted.
//
// The decisions are pure: Next, Place, Leads, and presence, which turns what is heard of the nodes into what they are good for.
package membership
