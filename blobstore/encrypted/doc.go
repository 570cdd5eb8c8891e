// Package encrypted is a layer that encrypts blobs before the store below sees them.
// Plaintext is named and verified here; below there is ciphertext only, in a store of
// mode blobstore.Opaque.
//
//	keys, err := encrypted.OpenKeyring("passphrase", nil)
//	below, err := localdir.Open(dir, localdir.Options{Mode: blobstore.Opaque})
//	blobs, err := encrypted.New(below, keys, encrypted.Options{})
//
// # Promises
//
//   - Not one byte of plaintext is handed out that was not proven to be what a holder
//     of a passphrase stored under that reference: ErrTampered otherwise, also when two
//     blobs were swapped, and ErrTruncated when the end is missing.
//   - Get and Open of a Verified store hash the plaintext too. GetRange decrypts only
//     the chunks that it needs, each of which proves itself.
//   - A blob is self-contained: a second machine with the passphrase needs nothing else,
//     unless ids are keyed, when it needs the marker too.
//   - ErrWrongKey is not ErrTampered: with the right passphrase the blob may be whole.
//   - Memory is bounded by one chunk for streams of any length, and what a blob makes
//     Argon2id do by 256 MiB and three passes. A key is derived once a process.
//   - The marker is there, twice, before the first blob is. A tool without the passphrase
//     tells ciphertext from damage by IsEncrypted, or by the marker. To store a blob the
//     marker has to be read first, once: behind writethrough the first blob on a new
//     machine waits for the remote.
//   - With a wrong passphrase nothing is stored either, so that one store never holds blobs
//     that no keyring opens.
//
// Hidden are the contents. Not hidden are how many blobs there are, how long each is,
// when it was stored and asked for, and, unless ids are keyed, the SHA-256 of each
// plaintext: who has a file can ask whether the store has it. Whoever can write to the
// store below can delete a blob, and put an older one of the same reference in its
// place, which makes a difference in mode Opaque only.
//
// # Keys
//
// A Keyring is passphrases, newest first. The newest encrypts; each decrypts. Argon2id
// (version 0x13) makes of a passphrase and a salt of 16 bytes, without secret or
// associated data, 48 bytes: a wrapping key of 32, and a key id of 16 that tells a
// reader which passphrase is meant without trying the key. The salt of a store is that
// of its marker, so that the derivation is the same for all blobs.
//
// # A blob in our own form
//
// Integers are big-endian, AES-GCM is AES-256-GCM with a tag of 16 bytes at the end.
//
//	offset  bytes
//	     0     16  magic: "agentrun-sealed\n"
//	    16      1  version: 1
//	    17      1  flags: 1 = the writer did not hold the plaintext against the id
//	    18      1  chunk size as a power of two: 12 to 24
//	    19      1  Argon2id: passes
//	    20      1  Argon2id: lanes, 1 to 16
//	    21      4  Argon2id: KiB of memory, 8 x lanes to 262144; passes x KiB <= 786432
//	    25     16  Argon2id: salt
//	    41     16  key id
//	    57     12  nonce of the wrapped data key, random
//	    69     48  data key of 32 random bytes: AES-GCM under the wrapping key; additional
//	               data: bytes 0 to 56 and 117 to 148
//	   117     32  salt of the subkey, random
//	   149     56  id of the plaintext, 32 bytes, and its length, 8: AES-GCM under the
//	               subkey, nonce 0x01 and eleven 0x00
//	   205      4  CRC-32C of bytes 0 to 204: tells damage from a strange key
//	   209         chunks
//
// The subkey is HKDF-SHA-256 of the data key, with the salt above and the info "agentrun
// blob" and bytes 16 to 18, 32 bytes long. No two blobs share one, and each time a blob is
// stored it gets another.
//
// The plaintext is cut into chunks of the chunk size; the last may be shorter, and is
// empty only where it is the only one. Each is AES-GCM under the subkey with the id of the
// plaintext as additional data. Its nonce is three zeros, the number of the chunk from 0
// in eight bytes, and 1 for the last chunk or 0 for others: the STREAM construction of
// Hoang, Reyhanitabar, Rogaway and Vizár. So none can be left out, doubled or put
// elsewhere, and the header says how long all of it is.
//
// It is stored under the id of its plaintext, or, where ids are keyed, under
// HMAC-SHA-256 of that with the id key.
//
// # A blob in the seed's form
//
// A nonce of 12 random bytes and AES-GCM of the plaintext, without additional data, under
// the SHA-256 of the passphrase: what agent.v1 clients store, under the id of the
// plaintext. It is always read, and written with Options.Form. A swap of two such blobs
// is found by the hash of the plaintext, so in mode Verified only. That a passphrase is
// wrong is known by the marker; without one the two errors can't be told apart, and it
// is ErrWrongKey.
//
// # The marker
//
// Under the two ids of blobstore.EncryptionMarkers, which no listing shows, lie equal
// copies of one text: the magic, and JSON. Its member version is 1; ids is "plain",
// "keyed", or "mixed" while blobs with plain ids may be left; slots has one object for
// each passphrase: kdf "argon2id", time, threads, memory_kib and, in hexadecimal, salt,
// key_id and sealed, which is a nonce of 12 bytes and AES-GCM, under the wrapping key, of
// the id key: 32 random bytes, none where ids are plain. Its additional data is the text
//
//	agentrun marker 1 IDS argon2id TIME THREADS MEMORY_KIB SALT KEY_ID
//
// so that nobody without a passphrase turns keyed ids off. The id key never changes: a new
// passphrase is a new slot for it. Two processes that make a keyed store at the same
// moment may each make an id key; the one whose key is lost has its blobs filed anew by
// Rotate. Store one blob before others come.
//
// # Concurrency
//
// All methods may be called concurrently, also by several processes.
package encrypted
