// Package checkpoint records how the files that a session works on look, and brings
// them back: a rewind.
//
// # What is recorded
//
// Every record is an observation: this file had this content and this mode, or was
// not there. A tool observes a file before it changes it and behind ([Recorder.Before],
// [Recorder.After]); a person observes files and directories
// ([Recorder.Checkpoint]). The content goes to the blob store of the session, the
// same bytes once, and the record to its log, as a custom entry of type
// [entry.CustomTypeCheckpoint], which pi and oh-my-pi pass over. A file that is as it
// was last time is not recorded again, and costs a stat.
//
// Regular files are recorded: content and permissions, not owners, attributes and
// second names. Symbolic links are not followed. What is left out (a file above
// [Options.MaxFile], a link, .git, the home of the sessions) is told, and stands in
// the record.
//
// # What a rewind does
//
// There is one disk, so time is the order of the log, whatever branch an entry is on.
// [Recorder.Plan] compares how each recorded file was at an entry with how it is now,
// and decides file by file; [Recorder.Apply] carries that out.
//
//   - A file that was never recorded is never touched, nor is anything in .git.
//   - A file that is not as its last record says was changed since. If a run or tool
//     call of the session did it, it is restored all the same; else it is left alone,
//     unless [PlanOptions.Changed] says otherwise.
//   - Every content is in the blob store, and the record of what is about to be done
//     in the log, before anything is overwritten or deleted. So a rewind is undone by a
//     rewind to that record, and one that was interrupted is finished by another
//     one. Each file is replaced in one step, and looked at once more right before.
//   - A file in the place of which something else stands, a directory or a link, or
//     that is reached through a link, is refused. Paths outside of the
//     session's working directory are left alone without [PlanOptions.Outside]: a log
//     may come from elsewhere and name any.
//
// A Recorder is safe for concurrent use.
package checkpoint
