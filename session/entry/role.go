package entry

// Roles of messages. The last two are never written: contexts make them of
// entries.
const (
	RoleUser              = "user"
	RoleDeveloper         = "developer"
	RoleAssistant         = "assistant"
	RoleToolResult        = "toolResult"
	RoleBashExecution     = "bashExecution"
	RolePythonExecution   = "pythonExecution"
	RoleCustom            = "custom"
	RoleHookMessage       = "hookMessage" // what version 2 called RoleCustom
	RoleFileMention       = "fileMention"
	RoleBranchSummary     = "branchSummary"
	RoleCompactionSummary = "compactionSummary"
)

// roleName returns name as a string, without allocating for the roles above.
func roleName(name []byte) string {
	switch string(name) {
	case RoleUser:
		return RoleUser
	case RoleDeveloper:
		return RoleDeveloper
	case RoleAssistant:
		return RoleAssistant
	case RoleToolResult:
		return RoleToolResult
	case RoleBashExecution:
		return RoleBashExecution
	case RolePythonExecution:
		return RolePythonExecution
	case RoleCustom:
		return RoleCustom
	case RoleHookMessage:
		return RoleHookMessage
	case RoleFileMention:
		return RoleFileMention
	}
	return string(name)
}

// Reasons for which a model stopped.
const (
	StopStop    = "stop"
	StopLength  = "length"
	StopToolUse = "toolUse"
	StopError   = "error"
	StopAborted = "aborted"
)
