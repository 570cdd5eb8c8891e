// Package catalog knows where sessions are and what they are called: the layout
// of a home, the directory that stands for a working directory, the names of a
// session's files, and how to list and find sessions without reading them whole.
//
// # Layout
//
//	<home>/
//	  blobs/<sha256 hex>                 images and long strings of all sessions
//	  sessions/<encoded cwd>/
//	    <timestamp>_<id>.jsonl           the log; .jsonl.zst when it is compressed
//	    <timestamp>_<id>/                its artifacts
//	    <timestamp>_<id>.lock            held for an append or a rewrite
//	    <timestamp>_<id>.driver          held by the one agent loop of the session
//	    .founding.lock                   held while a directory gets its first session
//	    <timestamp>_<id>.index           rebuildable
//	    <timestamp>_<id>.jsonl.damaged   damaged bytes, kept before a rewrite
//	  trash/                             removed sessions
//	  kept-blobs/                        blobs of sessions that others cannot see
//	  list.cache                         rebuildable
//	  agentrun.home                      says that the home is ours
//
// sessions and blobs are those of an oh-my-pi 18 agent directory, which may be
// used as a home as it is; see [Foreign].
//
// # Promises
//
//   - Nothing here changes a session. The only files written are the list cache
//     and the mark of a home.
//   - A file is judged by its first bytes: the title slot and the header line,
//     and at most its last 32 KiB for a later title. Memory for a file is bounded
//     by [MaxHeaderBytes], whatever its size.
//   - A file that is no readable session is reported as [Unreadable], with the
//     reason, and hides no other.
//   - The cache is only a shortcut: an answer taken from it is the answer that
//     the file would give, as far as size, inode and modification time tell
//     files apart. A cache that is missing, damaged, forged or unwritable costs
//     time, never an error.
//   - A path is made of an argument only when the argument is a path. An id is
//     only ever compared with the names and headers found.
//
// All functions and methods are safe for concurrent use, by any number of
// processes.
package catalog
