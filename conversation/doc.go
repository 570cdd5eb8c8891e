// Package conversation turns a session into a conversation state of agent.v1 and back.
//
// A state (ConversationStateStructure) is a tree of content-addressed blobs in any
// blobstore.Store: the state names turns, a turn names a user message and steps. How
// each field of it stands for something of a session is in MAPPING.md, beside this file;
// a test holds that table to the descriptors.
//
// # What is promised
//
//   - A session that is projected and restored is the same file, to the byte: what
//     agent.v1 has no words for rides in a sidecar, the unknown field [SidecarField] of
//     the state, which other programs keep as they keep all unknown fields.
//   - What other programs did to a state comes back as entries that go on from the last
//     turn that they left alone. No line of the log is ever lost by that.
//   - One more turn stores that turn: its own blobs, the ends of two trees, and the
//     state.
//   - Ids are the hashes of the bytes that were stored. Nothing is encoded again to get
//     an id, and fields and values that are not known here are kept.
//   - A state is stored behind all that it names.
//   - Reading is lazy and bounded (see [Limits]), whatever the bytes: a blob that is not
//     there costs what it holds, and is named in a [Hole].
//
// # Concurrency
//
// A [Projector] is for one goroutine. A [State] may be used by several.
package conversation
