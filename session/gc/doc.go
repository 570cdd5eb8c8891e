// Package gc finds what a home can do without, and removes it when told to:
//
//   - blobs that nothing names,
//   - sessions that have been in the trash for long,
//   - temporaries that killed processes left, and artifacts whose log is gone,
//   - indexes of what is not there any more,
//   - and, where the settings of the home or the caller ask for it, sessions that
//     nobody has used for long, which go to the trash after a warning.
//
// # What is promised
//
//   - Nothing that anything names is ever removed: by an entry, in whatever form, of
//     a plain, compressed, damaged or backed-up log, of a session of a subagent or one
//     in the trash; by an artifact, an agent's output or another blob; in this home, in
//     one that shares its blobs, or in a session file elsewhere that was written with
//     this home. Text that looks like a reference counts as one.
//   - Nothing younger than the grace period is removed, nor what was stored while a
//     lease was held that is held still: what is being written now is not named yet.
//     Writers never wait for the collector.
//   - When anything cannot be read that may name blobs, no blob is removed, and the
//     report says why. A session file elsewhere that is gone is named, and its blobs
//     stay.
//   - A killed collector leaves nothing wrong behind: the next one goes on.
//   - Of two collectors at once the second is refused.
//
// Without Options.Apply nothing changes but a cache, mark.cache: what each file
// mentions, by path, inode, size and time, so that the next run reads only what is
// new.
//
// # Several homes
//
// The homes that count are the one given, those whose blobs are a symbolic link to its
// blobs (they enter themselves in the registry beside the blobs), and the one that its
// own blobs are a link to. In an agent directory of oh-my-pi, archive/ counts as well,
// and its own collector is kept out meanwhile by its lock, gc.lock.
package gc
