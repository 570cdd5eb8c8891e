// Package ecmajson reads and writes JSON the way JavaScript does, on raw bytes.
//
// The session log is shared with programs that parse each line with JSON.parse
// and write it back with JSON.stringify. What this package writes is therefore
// what JSON.stringify would have written, so that a rewrite by such a program
// leaves a line, and the checksum over it, as it was.
//
// # What is promised
//
//   - No reflection, no decoding into trees, no recursion: nesting costs one
//     bit a level, so a million levels are as harmless as nine thousand.
//   - Functions that take a slice never change it and never keep it. All
//     functions may be called concurrently.
//   - [Valid] accepts exactly what encoding/json.Valid accepts, without its
//     limit of 10,000 levels. In particular, bytes inside a string that are not
//     UTF-8 are accepted: a JavaScript program reads each such sequence as
//     U+FFFD, and so do [Unquote] and [AppendNormal].
//   - Strings are JavaScript strings, which may hold half a surrogate pair.
//     Decoded, they are WTF-8: UTF-8 in which a lone surrogate U+D800 to U+DFFF
//     takes the three bytes that UTF-8 forbids (ED A0 80 to ED BF BF).
//
// # What is normal
//
// [AppendNormal] brings a value into its normal form, JSON.stringify(JSON.parse(x)):
// no white space; the escapes \" \\ \b \f \n \r \t, \u00xx for other control
// characters and \udxxx for lone surrogates, in lower case, and no others;
// numbers as ECMAScript prints a double; keys that are array indexes
// ("0" to "4294967294") first, in ascending order; of members with one key the
// last value at the first one's place. There is one deliberate difference: a
// number whose decimal value a double does not give back (1e400,
// 12345678901234567890) keeps its literal instead of being changed.
//
// # Walking
//
// [Object] and [Array] iterate over raw spans. They trust the structure, which
// keeps them fast: on bytes that [Valid] would refuse they stop early or hand
// out odd spans, but never read out of bounds and never loop.
package ecmajson
