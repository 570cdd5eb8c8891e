// Package session keeps the log of a coding agent: one file of JSON lines, a
// header and then entries that form a tree, in the session format (version 3)
// that pi and oh-my-pi share. The lines themselves, their checksums and the
// header are described in package record, the entries in package entry.
//
// # What is promised
//
//   - An append that returned without an error is on disk: with Sync (the
//     default) it was fsynced, and so were the blobs it names, with Flush the
//     kernel has it and kill -9 does not lose it.
//   - An append that failed left the file as it was. Its entry stays pending
//     under the id that the *PendingError names and is written before the next
//     append; the caller must not append it again.
//   - Single appends of any number of processes and goroutines interleave
//     whole. Each reads in what the others wrote first, and its parent is the
//     last entry at that moment.
//   - A session opens whatever happened to its file, as long as its first
//     record is a header. Damage costs the damaged bytes only, is reported by
//     Damage, and is kept in <session>.damaged before the file is ever
//     rewritten. Reading changes nothing on disk.
//   - Loading gives back what was appended. Strings and images that are too big
//     for a line live in the blob store and return from there.
//
// # What is refused
//
// A file whose first record is no header, and anything that is no regular
// file. A session of a newer version can be read, and is never appended to.
//
// # Concurrency
//
// A Manager and a Session are safe for concurrent use. Concurrent appends share
// one write and one fsync. Readers never wait for writers, in this process or in
// another one.
//
// # Locks
//
// Writers take <stem>.lock (flock) for one append or batch, for at most
// LockWait. When the log has been moved, whoever gets the lock finds in its file
// where to, and goes there. A program that runs a whole agent loop over a session
// takes the driver lease besides, see Session.Drive. Neither file is ever renamed
// or removed, and readers make none.
package session
