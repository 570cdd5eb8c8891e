// Package diskkv keeps blobs in a SQLite file with a table cursorDiskKV: the form in
// which other agents keep the blobs and pointers of their conversations. It reads
// their files, and writes files of its own in the same form.
//
// # The format
//
// The file is a SQLite database with one table:
//
//	CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)
//
// Keys, and what their values are:
//
//	agentKv:blob:<hex id>                                a blob: bytes, or text (below)
//	agentKv:checkpoint:<conversation>                    text: the hex id of its latest state
//	agentKv:bubbleCheckpoint:<conversation>:<bubble>     text: the hex id of its state at a message
//	<bcId>:cloudAgent:metadata                           text: padded base64 of CloudAgentStatePersistedMetadata
//	composerData:<conversation>                          JSON; its conversationState is "~" and base64, or hex
//	agentrun:unverified:<hex id>                         ours: bytes that a server vouches for, not their hash
//	agentrun:note:<key>                                  ours: checksum and time of the value of that key
//	agentrun:history:<conversation>:<16 hex digits>      ours: what pointers were before
//	agentrun:format, agentrun:mode                       ours: "1"; "verified" or "opaque"
//
// A blob is written as the bytes it has, and the empty one as the byte 0x00, as those
// who share the format do. What is read is, in this order: the bytes themselves; for the one byte
// 0x00, nothing; bytes that the value is the hexadecimal form of, or the base64 form
// (standard or url-safe, padded or not). The first of them that hashes to the id is
// the blob, so that a blob that is one byte 0x00 is read as such; where none does, the
// error is blobstore.ErrCorrupt. In mode blobstore.Opaque a file of our own holds all values
// as they are, the empty one too; in another's, what the hash does not decide is read as the programs that wrote
// it do: 0x00 is nothing, and text hexadecimal before base64.
//
// A file with tables blobs (id TEXT, data BLOB) and meta (key, value) instead, the
// store.db of one chat of a command-line program, is read as well: its blobs in all forms
// of above, and LatestRoot.
//
// # Whose file
//
// A file is ours when its header has the application id 0x6167726e ("agrn") and its
// table the key agentrun:format. Any other file is read only (blobstore.ErrReadOnly), and
// neither it nor anything beside it is changed, made or removed:
//
//   - With a rollback journal, or with a log (-wal) and its index (-shm) beside it, it is
//     read with SQLite's own locks. What its program has written to the log is seen,
//     whether that program runs or was killed. While the store is open, the program finds
//     another reader: it leaves its log where it is when it closes. (One exception: SQLite may
//     make an empty log where that program removes its own in the instant of opening.)
//   - With neither, it is read as it is, without locks, and looked at before and after
//     each operation: when it, or its log, was changed meanwhile, it is opened anew
//     and the operation repeated.
//   - A log without its index is nobody's who runs, and SQLite would make the index: the
//     two are copied to a private directory for temporaries and read there.
//
// A file whose program died in the middle of a transaction with a rollback journal is
// ErrUnfinished until that program opened it again.
//
// # Promises
//
// A file of our own is in WAL mode, may be written by several processes at once, and is
// made whole, under its name at once, by the first write.
//
//   - What is acknowledged is committed. With Options.Sync it survives power loss; without,
//     the death of the process, and power loss after Flush.
//   - Writes that meet go into one transaction; SetAll makes one of many.
//   - No bytes of a Verified store are handed out that do not hash to their id. SQLite has
//     no checksums of its own: pointers, metadata and unverified blobs that were written here
//     have one beside them, and are blobstore.ErrCorrupt when it does not fit.
//   - A file that SQLite cannot open is moved aside with its log, to <file>.damaged-<time>,
//     and Open says so; a new one is begun. A log that is damaged before its last transaction
//     is read as far as SQLite believes it, and kept, and Open says so. Damage that does not keep it from being
//     opened is blobstore.ErrCorrupt where it is met, and Verify looks for all of it.
//   - A path that is a symbolic link, a FIFO, a device or a directory is refused, and so is
//     one beside it that SQLite would open; a view, a virtual table or a table with triggers or
//     computed columns of that name, too.
//
// A lock file, <file>.lock, is there from the first write on: making the file and moving it aside
// exclude each other. A blob is in memory as a whole, at most Options.MaxBytes.
//
// All methods may be called concurrently.
package diskkv
