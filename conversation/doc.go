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
// # What is in a state
//
// The log, branches and damaged lines included; the logs of subagents, as states in the
// state, each with a sidecar of its own; the files of the artifact directory, in pieces
// of 1 MiB that the sidecar names; and the blobs that lines cite: images, long strings,
// contents of files. They are copied into the store of the state, and from there into the
// home that a state is imported into.
//
// Not in it are locks and what can be rebuilt, and bytes that were set aside from a
// damaged log. Subagents whose log is compressed are files of the artifact directory.
//
// # Entry points
//
//	NewSessionProjector, Project   a session of a home -> the id of a state
//	StateForTransfer, Write        a state -> one file, with all that it names
//	ReadTransfer                   such a file, or any state -> a store
//	Load, Import                   a state -> a new session of a home
//	Load, Turn, Turns              a state, read in parts
//	Walk                           all that a state names
//	JSON, Text, FromText, Detect   other forms of a state
//
// A [Projector] and [State.WriteLog] do the same for a log that is in no home.
//
// # The file of a transfer
//
// It is a ConversationStateStructure to everybody who reads it as one. Its blobs are
// fields of it that agent.v1 does not know: number [TransferField], each a PreFetchedBlob
// (1 id, 2 value), behind the fields of the state. Without these the file is the state to
// the byte, so that the id of the state is the hash of the rest.
//
// # What another program may do
//
// A program that reads a state and writes it again keeps the sidecar, since it keeps
// unknown fields. Which turns it left alone is told by their ids: those have their lines.
// Turns that it made are converted, under the last turn before them that it left alone,
// so what it took away is a branch that was left. An entry of type [TurnType] behind a
// converted turn names the turn of the state: as long as nothing is added to it, that very
// turn stands in the next state, with all that a session has no words for. An entry of
// type [StateType] keeps what the state says beside its turns.
//
// # Concurrency
//
// A [Projector] is for one goroutine. A [State] may be used by several.
package conversation
