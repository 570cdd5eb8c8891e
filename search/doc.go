// Package search finds words in the sessions of a home: in their entries, in the
// output that tools left, in what agents handed back, and in the sessions of
// subagents. Compressed sessions are searched, the trash is not.
//
// # What is found
//
// A query has words, all of which must be there: in one entry, or, in an output, in
// ten lines that begin within 4 KiB of each other. Of a line longer than 64 KiB they
// must be in one piece of that size. A word is text, none of it syntax: `a-b-77`,
// `"`, `NEAR(` and `*` mean themselves. Words and texts are compared in Unicode's form
// NFKC without regard to case.
//
// A word that begins with a letter or digit is found where a word of the text begins,
// or a part of an identifier: behind `_`, at Pool and Timeout in
// ConnectionPoolTimeout, at Server in HTTPServer, at 404 in error404. In scripts
// without spaces, and in Korean, it is found anywhere. It may go on in the text,
// unless its last part has only one or two letters or digits: those are whole. In
// runs of more than 64 letters and digits, which are data, nothing is found but the
// beginning.
//
// Of an entry, every string in its JSON is searched, at any depth, with those that
// were put into the blob store; not names of members, ids and signatures, nor strings
// of 512 characters and more that are nothing but base64. Escape sequences of
// terminals are passed over, and everything else in an output is text, binary or not.
//
// With Query.Regexp words are regular expressions (RE2), for which upper and lower
// case differ, matched with the lines of an output and with the text of an entry.
//
// # The index
//
// <home>/search.db is an SQLite database that can be made anew at any time. Its FTS5
// table has no content and no positions: it says which chunk of about 64 KiB of which
// file holds which tokens. Every hit is looked up in its file, so a stale index makes
// no false hit, and files that grew, or are new, are searched from where the index
// ends. Files are known by device and inode: a session that was moved, or an artifact
// that is linked into a fork, is not read again.
//
// Writers of sessions never wait for the index and do not know of it. Processes that
// index take <home>/search.lock and do not wait for each other. search.stamp says how
// the last of them left the database; one that was changed since, or cannot be read,
// is not believed, and the files are searched.
//
// A kill, a full disk or a read-only home cost time, never an answer. A file that is
// changed in place, with the same length and modification time, is the one thing that
// is not noticed.
//
// # Cost
//
// A query costs a look at each file's name and size, at the index, and at the chunks
// that it names until there are enough hits. Words without a letter or digit, and
// expressions without a whole word, are looked for in all files, on every core.
// Memory is some batches of 64 KiB for each core, some megabytes of tokens and pages
// while the index is written, and the longest entry.
package search
