// Package entry holds the Go form of what a session log says: entries, their
// bodies, the messages inside them, the settings they change, and the context
// that a model is given at a leaf. It follows version 3 of the session format of
// oh-my-pi 18 and pi 0.73, and reads the versions before it.
//
// The package does no I/O and starts nothing. It never changes a byte that it is
// given: an [Entry] is the line as it stands in the file plus where it stands, and
// every typed value is decoded from those bytes when somebody asks. What this
// package has no field for is therefore never lost; to change a message, edit its
// raw JSON. The typed structs are for reading and for making new entries.
//
// # Reading
//
// Lines are hostile: a checksum only says that a line is as its author wrote it.
// No function here panics or recurses without bound, whatever the bytes. Peeks
// (Role, ToolCallIDs, and all that [BuildContext] looks at) never fail: a member
// of the wrong type counts as absent. [Entry.Body] and [Entry.Message] return an
// error then. Of several members with one name peeks take the first.
//
// # Writing
//
// [AppendFields] writes a [Body] as members of a line, in the form that
// JavaScript's JSON.stringify gives them, so that a rewrite by another program
// leaves the bytes as they are. It refuses members that belong to the envelope.
//
// # Context
//
// [BuildContext] turns a path (root to leaf, or the end of it) into the messages
// and settings that the next model call starts from. Its result is valid for
// providers: each tool call has one result, right behind the turn that made it.
// [Reach] tells a reader who walks from the leaf backwards where he can stop.
//
// All values may be used from several goroutines at once as long as nobody
// modifies the bytes they were made from, and those bytes must stay as they are
// for as long as anything read from them is in use: strings are not copied.
package entry
