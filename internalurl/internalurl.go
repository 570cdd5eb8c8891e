// Package internalurl resolves the short addresses by which agents and people
// refer to what a session keeps.
//
//	artifact://<n>                     output of a tool
//	agent://<id>                       output of a subagent, the newest
//	agent://<id>.v<n>                  an older one
//	agent://<id>/<name>                output of a subagent of that subagent
//	agent://<id>/<key>/...             a part of structured output
//	agent://<id>?q=<query>             the same, as a query
//	session://<sessionId>              what a session is, as JSON
//	session://<sessionId>/<entryId>    one entry of its log, as JSON
//	blob://sha256/<64 hex>             a blob, also as blob:sha256:<64 hex>
//	job://<n>                          what a job is, as JSON
//
// artifact and agent URLs mean the session at hand. With the id of a session as
// first segment (artifact://<sessionId>/<n>) they mean that one, everywhere.
//
// # Selectors
//
// Lines are selected at the end of the URL, counted from 1: ":10" from line 10
// on, ":10-20", ":10+5" five lines, ":10-" from line 10 on, ":-50" the last 50,
// and lists such as ":1-3,90-95", which are sorted and merged. ":raw" asks for
// the bytes as they are; it goes with lines in either order (":raw:10-20",
// ":10-20:raw"). The form is that of oh-my-pi 18. ":10@51200" is from line 10 on
// without the first 51,200 bytes of that line as it is shown, ":p7", ":p7-9" and ":p7-"
// are pages of a document that has pages, with lines behind it if any are meant. A
// selector does not go with a part of structured output.
//
// What is in an archive is named behind ":/", before a selector:
// artifact://3:/dir/file.txt:10-20. The name is as the archive has it, without escapes.
// A Router opens the archive; who reads it finds the member.
//
// # Promises
//
//   - Everything in a URL is hostile. What names a file passes one parser
//     (artifacts.ParseID, artifacts.ParseAgentID, blobref.ParseHex) and is never
//     joined to a path before. "..", encoded slashes, control characters,
//     session ids in upper case and ids of excessive length are refused.
//   - A URL that finds nothing in its session is an error that says what there
//     is. No other session is searched.
//   - A resource is opened, not loaded: see Resource. Only structured output of
//     agents, session entries and blobs of a store without streams are held in
//     memory.
//
// Parse and a Router are safe for concurrent use.
package internalurl

// sentence is an error whose whole text is meant for a person or a model; the
// wordings shared with oh-my-pi begin with a capital letter.
type sentence string

func (s sentence) Error() string { return string(s) }
