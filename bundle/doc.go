// Package bundle carries a session from one home to another in one file: its log,
// its artifacts, the sessions of its subagents, and every blob that any of them
// cites.
//
// # What is promised
//
//   - Export writes a consistent state of a session that others are writing to:
//     whole lines of each log, each artifact up to its length at that moment. It
//     changes nothing in the home.
//   - What cannot come along (a blob that is not there, a symbolic link among the
//     artifacts) is named in the manifest and in the result, with the reason.
//   - Import reads all of a bundle and verifies it before it writes anything: the
//     structure, every name, every size, every hash, that nothing is missing and
//     that nothing is too much. Only then it reads it a second time and unpacks.
//   - A session appears in the home whole or not at all. Blobs come first, then the
//     artifacts, the log last. What a crash leaves is called .tmp-*, is part of no
//     session, and is removed by the next import.
//   - Memory is bounded by the number of files, not by their sizes: a few blocks of
//     4 MiB, and about 300 bytes for each file.
//
// A bundle holds everything that the session said: prompts, output of commands, and
// whatever secrets are in them. It holds no credentials of providers, which no
// session has. Encrypt it where that matters.
//
// # What is refused
//
// A name that is absolute, leaves its directory, stands twice, or is no name that
// Export writes; everything that is no regular file (links, devices, sparse files);
// members that the manifest does not list, or lists otherwise; a bundle that ends
// early, or has something behind its end; one of a newer version; one that unpacks
// to more than Options.MaxBytes. The error says which, and nothing was written.
//
// # The format, version 1
//
// A bundle is a tar archive, compressed with zstd; zstd -d and tar unpack it:
//
//	bundle.json          what this is: format, version, session
//	session.jsonl        the log, plain also where the session was compressed
//	session.damaged      damaged bytes that were kept of it, where there are any
//	artifacts/<name>     a file of the artifact directory
//	blobs/<64 hex>       a blob, called by its SHA-256
//	manifest.json        every member before it: name, bytes, SHA-256; totals;
//	                     what is missing
//
// in this order, blobs and artifacts by name, all of them regular files. Not in it
// are locks, temporaries, and what can be rebuilt (line indexes, the indexes of
// logs); of .index only the file next, which keeps numbers from being given out
// again.
//
// The archive is cut into blocks of 4 MiB, each a zstd frame of its own that states
// its size, so that several processors work on it. A skippable frame of 12 bytes
// before each one tells its compressed length, as pzstd writes it (zstd's
// contrib/pzstd): magic 0x184D2A50, length 4, compressed length, each 32 bits, little
// endian. Other zstd files are refused.
//
// With a passphrase all of that is encrypted by age (age-encryption.org/v1) for one
// scrypt recipient; age -d decrypts it.
package bundle

// Version is the version of the format that Export writes, and the newest that is
// read.
const Version = 1

// Format is what bundle.json calls itself.
const Format = "agentrun bundle"

// Names of members.
const (
	aboutName    = "bundle.json"
	logName      = "session.jsonl"
	damagedName  = "session.damaged"
	artifactsDir = "artifacts/"
	blobsDir     = "blobs/"
	manifestName = "manifest.json"
)
