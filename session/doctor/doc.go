// Package doctor reads sessions, artifacts and blobs whole, says what is wrong with
// them, and repairs what can be repaired.
//
// # What is checked, and by what
//
//   - A log: every line, its crc, ids and parents, the header. A line without a crc,
//     which another program wrote, shows a changed byte only where it breaks the JSON.
//   - A compressed log: the checksum of every frame, and then its lines.
//   - An artifact: its CRC-32C, which stands in its provenance and in the end entry of
//     its run, and its kept line index. One by a program that notes no checksum is
//     counted as such; nothing tells whether its bytes changed. Outputs of agents have
//     none either.
//   - A blob: its name, which is its SHA-256.
//   - The checkpoints of a home, where Options.Checkpoints looks at them.
//   - What a log cites: artifacts, outputs of agents and blobs that are not there.
//
// Indexes and caches are checked against the files they are about whenever they are
// used, and removing them costs time only.
//
// # What repair does
//
// Nothing is changed without Options.Repair. A log is repaired as
// session.Manager.Repair says. A blob that is not what its name says is moved to
// .corrupt, and it, or a missing one, comes back from the places of Options.From,
// verified; so does an artifact, whose damaged bytes stay beside it as <name>.damaged.
// An artifact that nobody finished gets a provenance that says where it ends. What
// no place has stays a finding: it cannot be repaired.
//
// Repair is safe beside other agentrun processes. A program that knows no locks (pi,
// oh-my-pi) must not have the session open: it would go on writing to the old file.
//
// # Transcripts of others
//
// File also reads what Claude Code and Codex write, and never changes it.
package doctor
