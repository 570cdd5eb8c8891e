package record

import "github.com/tidwall/gjson"

// Format is a program's way to write a session.
type Format string

// The formats that a record shows.
const (
	FormatSession Format = "session" // of agentrun, pi and oh-my-pi
	FormatClaude  Format = "claude"  // a transcript of Claude Code
	FormatCodex   Format = "codex"   // a rollout of Codex
)

// FormatOf tells whose record an object is, "" when it does not show.
func FormatOf(object []byte) Format {
	v := gjson.GetManyBytes(object, "type", "uuid", "parentUuid", "leafUuid", "payload", "id", "parentId", "sessionId", "messageId", "instructions", "record_type", "role")
	typ := v[0].String()
	switch {
	case typ == "session" && v[5].Exists(), typ == "title" && gjson.GetBytes(object, "pad").Exists():
		return FormatSession
	case v[4].IsObject() && typ != "":
		return FormatCodex
	case v[1].Exists() && v[2].Exists(), v[3].Exists(), v[7].Exists(), typ == "file-history-snapshot" && v[8].Exists():
		return FormatClaude
	case v[6].Exists() && v[5].Exists():
		return FormatSession
	case v[9].Exists() && v[5].Exists(), v[10].Exists(), typ == "message" && v[11].Exists():
		return FormatCodex // before there was a payload
	case typ != "" && gjson.GetBytes(object, "message.role").Exists() && gjson.GetBytes(object, "timestamp").Exists():
		return FormatSession // version 1
	}
	return ""
}
