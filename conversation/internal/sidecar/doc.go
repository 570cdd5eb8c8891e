// Package sidecar keeps what agent.v1 has no words for: the lines of a session to
// the byte, which of them a turn is made of, and the files beside the log.
//
// # What is promised
//
//   - What was put in comes out to the byte.
//   - Both trees only grow at their end. What is full is never written again, so
//     a new turn writes its own chunks, one node for each level (three for a
//     million turns), and a root.
//   - The same lines give the same ids, in however many steps they came.
//   - Everything can be read in parts: one turn's lines are a few nodes and the
//     chunks they stand in.
//
// # The format, version 1
//
// Every blob but the chunks is a protobuf message, written by hand since no other
// program has to know it. Ids are 32 bytes: the SHA-256 of what they name.
//
//	Root    1 version, 2 Tree head, 3 Tree body, 4 Tree turns,
//	        5 digest of the state without this sidecar, 6 id of a Files, 7 length
//	        of a last line that has no newline
//	Tree    1 id of its root node, 2 weight, 3 count, 4 level
//	Node    1 level, 2 repeated Record
//	Record  1 id, 2 weight, 3 count, 4 repeated id of a cited blob,
//	        5 packed spans: offset and length, alternating
//	Files   1 repeated File
//	File    1 name, 2 bytes, 3 ids of its pieces, 32 bytes each
//
// The records of a node of level 0 are items: a chunk, with its bytes as weight
// and the blobs that its lines cite, or a turn, with weight 1, its id and its
// spans in the body. Those of a node of level n are nodes of level n-1 with the
// sums of what is below. A node has at most FanOut records; only the last one of a
// level has fewer.
//
// A chunk is raw bytes. The head is everything before the first entry, which
// writers may change in place; the body is the rest. A chunk ends where a turn
// begins, and after ChunkBytes at the latest.
//
// # Hostile bytes
//
// A node says its level, and its children must be one below, so no read is deeper
// than MaxLevel whatever a store hands out; sums must be what the parent said, so
// what a tree claims bounds what is read of it. Who reads all of a tree bounds the
// claim first.
package sidecar
