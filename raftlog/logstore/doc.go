// Package logstore keeps the Raft logs of all shard groups of a node in one sequence of segment files, written by one
// goroutine: what the groups want stored at one moment shares one write and one sync. The files are also the streams'
// storage. Record bytes are written once; the shards keep indexes into the log and read entries back by index for as
// long as they retain them (GroupLog.Entry, GroupLog.Retain), long after Raft has deleted them from its own view. What is
// retained may be islands in what is not: a file goes as soon as no group has a wanted entry in it, whatever is older.
//
// # Files
//
//	LOCK                    held while a process has the store open
//	<sequence>.seg          a segment; sequence numbers increase and are never used twice
//	<sequence>.free         a file kept for reuse, with its blocks allocated; its content means nothing
//
// A segment is a header block, a seal block and batches (format.go). A batch is what one write and one sync made durable:
// records of any groups, each with its own CRC32C over its bytes and the segment's random nonce, so that what an earlier
// life of a recycled file left behind never passes for a record.
//
// # Rules
//
// L1. One batch is synced before the next is written. So in the newest segment, bytes that are no valid batch are the torn
// end of the log when no valid batch follows them, and damage when one does. Damage is refused at Open, never skipped.
//
// L2. A segment is sealed (its index is written behind its last batch, a pointer to it into the seal block, one sync)
// before its successor is begun. So every segment but the newest has a valid seal, or is damaged. When the successor is
// durable, and before anything in it is answered, a mark beside the seal names it: a newest segment that has such a mark
// is not the newest. It is written and synced beside the first batch that is to be answered. A newest file without a sound
// beginning was never begun (L8), or not to its end, and is removed at Open, unless the one before it has a mark that names
// it: then it is damaged, which is refused.
//
// L3. Every segment begins with a record of the whole state: per group the range that Raft has, the lowest retained index,
// the vote; and of the census (segments.go): which segments there are, which groups have entries in each, and which ends
// of sealed segments were deleted. A segment can therefore go without taking a neighbour's meaning away. Before a
// segment's file goes, the state and the census that make it superfluous are made durable. So a file that is gone and
// not named by the last census was let go; one that is named and missing is damage, refused at Open.
//
// L4. Raft's range of a group has no gaps: entries are stored at last+1, or anywhere when the log is empty (monotonic). An
// entry stored at an index replaces everything that was there and behind it. A copy (L6) replaces nothing but its original.
//
// L5. After a failed write or sync nothing is begun to be written any more: what the disk holds is unknown until it is read again.
//
// L6. When little of an older segment is retained, that is copied to the end of the log (copy.go), and the segment goes.
// So what is retained takes at most about eight times its size, and the newest segments, in which nothing is copied; a
// copy is durable before its original can go.
//
// L7. What another node's log holds comes in beside the log that it is to replace, under another name: Reset, Place
// (records like those of copies, below Raft's range, with holes), and Adopt, which swaps the two names and empties the old
// log by one record. So a crash leaves the one or the other.
//
// L8. The file of the next segment is made ahead of need (ahead.go): when half of the active one is written, a goroutine
// creates it under its name, or renames a free one, allocates its blocks, and syncs it and the directory. A rotation then
// writes to it only, and syncs its data. It has no header before it is begun, whatever a recycled file holds: that names
// another sequence number. There is one at most, and none before the mark that names the active segment is durable, so that
// what L2 says of the newest file tells it from damage. It is in no census, and no segment before it is begun. For want of
// space, or when it cannot be created, it is made when it is needed; a failed sync is final (L5). Close waits for the
// goroutine and removes the file.
//
// # What is not promised
//
// The only segment there is has none before it: when its beginning is damaged and no batch follows, it is taken for one
// that was never finished. Damage within the very last batch cannot be told from a torn write, so it is taken for one; so
// is a newest segment that was cut behind one of its batches, and a directory that was emptied is a new one. Sealed
// segments are not read at Open; damage in them is found when the entry is read, which then fails with CORRUPT and is
// never answered with wrong bytes.
package logstore
