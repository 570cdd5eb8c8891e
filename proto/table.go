//go:build ignore

// Command table writes the table that the descriptors of the generated messages have to
// match, testdata/table.txt, from notes of what was seen on the wire:
//
//	go run proto/table.go NOTES.md... > proto/testdata/table.txt
//
// It was written apart from the .proto files, so that a slip in one of them shows as a
// difference. The notes are not part of the project. They have blocks
//
//	```fields PACKAGE
//	Name, {A,B}Suffix: 1 field TYPE; 2 other? u32; {oneof: 3 a b, 4 c =}; +MARK 5 list[] str
//	```
//
// with b, u32, i64, str or nothing (string), bool, double, map<k,v> as types; = for the
// type that is called like the field, =s less its s, =U with Update behind it; ~ for the
// name of the message less ToolCall or Result and the field, ~T with Tool between; .X
// nested; a. from agent.v1. A ? is explicit presence, [] is repeated, marks of the version
// that a field was first seen in are skipped, - is a message without fields.
// What the notes say in prose is in the block of this program that begins with "prose".
package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const prose = `agent.v1
PrewarmRequest: 1 model_details ModelDetails; 2 conversation_id?; 3 conversation_state CSS; 4 mcp_tools McpTools; 9 requested_model? RequestedModel
McpTools: 1 mcp_tools[] McpToolDefinition
ClientHeartbeat, UploadConversationBlobsResponse: -
NameAgentRequest, NameAgentResponse, GetUsableModelsRequest, GetUsableModelsResponse: -
NotifyConversationCloneRequest, NotifyConversationCloneResponse: -
ExecServerMessage: 1 id u32; 15 exec_id; 19 span_context? SpanContext; {message: 14 shell_stream_args ShellArgs, 44 git_diff_request GitDiffRequest}
ExecClientMessage: 1 id u32; 15 exec_id; 39 local_execution_time_ms? i32; 45 hook_additional_contexts[] HookAdditionalContext; {message: 14 shell_stream ShellStream, 44 git_diff_response GitDiffResponse}
ExecServerControlMessage: {message: 1 abort ExecServerAbort}
ExecServerAbort, ExecClientStreamClose, ExecClientHeartbeat: 1 id u32
ExecClientThrow: 1 id u32; 2 error; 3 stack_trace?; 4 error_code?
ExecClientControlMessage: {message: 1 stream_close ExecClientStreamClose, 3 heartbeat ExecClientHeartbeat, 2 throw ExecClientThrow}
InteractionQuery, InteractionResponse: 1 id u32
SubagentTypeCustom: 1 name
aiserver.v1
BidiAppendResponse, BidiPollRequest, BidiPollResponse: -
StartBackgroundComposerFromSnapshotRequest: 44 conversation_action a.ConversationAction; 47 conversation_state a.CSS; 48 pre_fetched_blobs[] PreFetchedBlob
StartBackgroundComposerFromSnapshotResponse: -`

const services = `service agent.v1.AgentService
  Run stream agent.v1.AgentClientMessage -> stream agent.v1.AgentServerMessage
  RunSSE aiserver.v1.BidiRequestId -> stream agent.v1.AgentServerMessage
  RunPoll aiserver.v1.BidiPollRequest -> stream aiserver.v1.BidiPollResponse
  NameAgent agent.v1.NameAgentRequest -> agent.v1.NameAgentResponse
  GetUsableModels agent.v1.GetUsableModelsRequest -> agent.v1.GetUsableModelsResponse
  UploadConversationBlobs agent.v1.UploadConversationBlobsRequest -> agent.v1.UploadConversationBlobsResponse
  NotifyConversationClone agent.v1.NotifyConversationCloneRequest -> agent.v1.NotifyConversationCloneResponse

service agentrun.kv.v1.KvService
  Serve stream agent.v1.KvServerMessage -> stream agent.v1.KvClientMessage

service aiserver.v1.BackgroundComposerService
  StreamConversation aiserver.v1.StreamConversationRequest -> stream aiserver.v1.StreamConversationResponse
  GetBlobForAgentKV aiserver.v1.GetBlobForAgentKVRequest -> aiserver.v1.GetBlobForAgentKVResponse
  GetLatestAgentConversationState aiserver.v1.GetLatestAgentConversationStateRequest -> aiserver.v1.GetLatestAgentConversationStateResponse
  StartBackgroundComposerFromSnapshot aiserver.v1.StartBackgroundComposerFromSnapshotRequest -> aiserver.v1.StartBackgroundComposerFromSnapshotResponse

service aiserver.v1.BidiService
  BidiAppend aiserver.v1.BidiAppendRequest -> aiserver.v1.BidiAppendResponse
`

// messages are lines of fields by number, enums lines of values, both by full name.
var (
	messages = map[string]map[int]string{}
	enums    = map[string]map[int]string{}
	reserved = map[string][]int{}
	used     = map[string]bool{}
	short    = map[string]string{"CSS": "ConversationStateStructure", "SCR": "StreamConversationResponse"}
	scalars  = map[string]string{
		"": "string", "str": "string", "b": "bytes", "bool": "bool", "double": "double",
		"u32": "uint32", "u64": "uint64", "i32": "int32", "i64": "int64",
	}
	// nested are the messages whose = types are inside of them.
	nested = map[string]bool{"StreamConversationResponse": true, "SelectedImage": true, "GrindModeConfig": true, "UserMessage.simulated_message_metadata": true}
	number = regexp.MustCompile(`\d+`)
)

func main() {
	for _, path := range os.Args[1:] {
		data, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		notes(string(data))
	}
	pkg := ""
	for line := range strings.Lines(prose) {
		if line = strings.TrimSpace(line); !strings.Contains(line, ":") {
			pkg = line
			continue
		}
		message(pkg, line)
	}
	// What the legacy form has in common with the newer one since an SDK.
	for i, from := range []int{20, 23, 25, 28, 29} {
		messages["agent.v1.ConversationState"][12+i] = messages["agent.v1.ConversationStateStructure"][from]
	}
	for name := range used {
		if messages[name] == nil && enums[name] == nil && !strings.HasPrefix(name, "google.") {
			messages[name] = map[int]string{}
		}
	}
	write()
}

func write() {
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		fmt.Printf("message %s\n", name)
		if r := reserved[name]; r != nil {
			slices.Sort(r)
			fmt.Printf("  reserved %s\n", strings.Trim(fmt.Sprint(r), "[]"))
		}
		lines(messages[name])
	}
	for _, name := range slices.Sorted(maps.Keys(enums)) {
		fmt.Printf("enum %s\n", name)
		lines(enums[name])
	}
	fmt.Print(services)
}

func lines(of map[int]string) {
	for _, n := range slices.Sorted(maps.Keys(of)) {
		fmt.Printf("  %d %s\n", n, of[n])
	}
	fmt.Println()
}

// notes reads one file of notes: its blocks, its paragraphs of retired numbers, and its
// section of enums.
func notes(text string) {
	for i, part := range strings.Split(text, "```") {
		if i%2 == 0 {
			continue
		}
		head, body, _ := strings.Cut(part, "\n")
		words := strings.Fields(head)
		for line := range strings.Lines(body) {
			switch line = strings.TrimSpace(line); {
			case line == "":
			case words[0] == "fields":
				message(words[1], line)
			case words[0] == "pairs":
				pairs(line)
			}
		}
	}
	for _, begin := range []string{"Never reuse retired or gap\nnumbers:", "**Gaps, never reuse:**"} {
		if _, rest, ok := strings.Cut(text, begin); ok {
			paragraph, _, _ := strings.Cut(rest, "\n\n")
			gaps(strings.Trim(paragraph, "\n .;"))
		}
	}
	for section := range strings.SplitSeq(text, "\n## ") {
		for _, title := range []string{"8. Enums", "9. anyrun.v1"} {
			if _, rest, ok := strings.Cut(section, title); ok {
				enumerations(rest)
			}
		}
	}
}

// gaps reads "Name 1 2 3-5; Other/Another 6". The names of the notes leave out packages.
func gaps(text string) {
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ',' }) {
		name := ""
		for _, word := range strings.Fields(item) {
			if !number.MatchString(word) {
				name = word
				continue
			}
			from, to, ok := strings.Cut(word, "-")
			if !ok {
				to = from
			}
			first, _ := strconv.Atoi(from)
			last, _ := strconv.Atoi(to)
			for n := first; n <= last; n++ {
				for _, one := range fullNames(name) {
					// Read where they are there, and so no gap.
					if strings.HasSuffix(one, ".ConversationStateStructure") && n == 2 || strings.HasSuffix(one, ".ToolCall") && (n == 26 || n == 27) {
						continue
					}
					reserved[one] = append(reserved[one], n)
				}
			}
		}
	}
}

// fullNames gives the names behind one of a paragraph of gaps.
func fullNames(name string) []string {
	if a, ok := strings.CutSuffix(name, "Query/Response"); ok {
		return []string{"agent.v1." + a + "Query", "agent.v1." + a + "Response"}
	}
	first, rest, dotted := strings.Cut(name, ".")
	full := first
	if s := short[first]; s != "" {
		full = s
	}
	if dotted {
		full += "." + rest
	}
	if first == "SCR" {
		return []string{"aiserver.v1." + full}
	}
	return []string{"agent.v1." + full}
}

// enumerations reads "Name [PREFIX_] 1 ONE 2 TWO, +D 3 THREE. Other 1 ...".
func enumerations(text string) {
	// Blocks of fields are not about enums.
	if parts := strings.Split(text, "```"); len(parts) > 1 {
		text = parts[len(parts)-1]
	}
	if at := regexp.MustCompile(`(?m)^## `).FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	text = strings.NewReplacer(",", " ", ":", " ", "`", "", ".", " . ", "\n", " ").Replace(text)
	text = regexp.MustCompile(`(GrindModeConfig|SCR) \. `).ReplaceAllString(text, "$1.")
	full, prefix := "", ""
	words := strings.Fields(text)
	camel := regexp.MustCompile(`^([A-Z][a-z]+)([A-Z][a-z]+)+$|\.`)
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w == ".":
			full = ""
		case camel.MatchString(w) && i+1 < len(words):
			pkg := "agent.v1."
			name := strings.Replace(w, "SCR.", short["SCR"]+".", 1)
			for _, mark := range []string{"Cloud", "Grind", "Stream", "BackgroundComposer"} {
				if strings.HasPrefix(name, mark) {
					pkg = "aiserver.v1."
				}
			}
			switch name {
			case "PersistedMetadataVersion":
				pkg, name = "aiserver.v1.", "CloudAgentStatePersistedMetadata."+name
			case "BlobStorageFormat":
				pkg = "anyrun.v1."
			}
			last := name[strings.LastIndex(name, ".")+1:]
			prefix = regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(last, "${1}_$2")
			prefix = strings.ToUpper(prefix) + "_"
			full = pkg + name
			if enums[full] == nil {
				enums[full] = map[int]string{0: prefix + "UNSPECIFIED"}
			}
		case strings.HasPrefix(w, "[") && full != "":
			prefix = strings.Trim(w, "[]")
			enums[full][0] = prefix + "UNSPECIFIED"
		case full != "" && regexp.MustCompile(`^\d+$`).MatchString(w) && i+1 < len(words) && regexp.MustCompile(`^[A-Z0-9_]+$`).MatchString(words[i+1]):
			n, _ := strconv.Atoi(w)
			i++
			enums[full][n] = prefix + words[i]
		}
	}
}

// message reads one line of a block of fields.
func message(pkg, line string) {
	head, body, _ := strings.Cut(line, ":")
	for _, name := range names(head) {
		if first, rest, ok := strings.Cut(name, "."); ok && short[first] != "" {
			name = short[first] + "." + rest
		}
		full := pkg + "." + name
		if messages[full] == nil {
			messages[full] = map[int]string{}
		}
		fields(pkg, name, strings.TrimSpace(body))
	}
}

// names gives the names before a colon. Braces multiply, also those around everything.
func names(head string) []string {
	head = regexp.MustCompile(` ?@[A-Z]`).ReplaceAllString(strings.TrimSpace(head), "")
	open := strings.IndexByte(head, '{')
	if open < 0 {
		return strings.Split(head, ", ")
	}
	end := strings.IndexByte(head, '}')
	var all []string
	for one := range strings.SplitSeq(head[open+1:end], ",") {
		all = append(all, head[:open]+strings.TrimSpace(one)+head[end+1:])
	}
	return all
}

// fields reads fields word by word: a number begins one, braces are oneofs.
func fields(pkg, msg, body string) {
	body = strings.NewReplacer(";", " ; ", "{", " { ", "}", " } ", ", ", " ; ").Replace(body)
	oneof := ""
	words := strings.Fields(body)
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case w == "{":
			i++
			oneof = strings.TrimSuffix(words[i], ":")
		case w == "}":
			oneof = ""
		case w[0] >= '0' && w[0] <= '9':
			n, _ := strconv.Atoi(w)
			name, typ := words[i+1], ""
			i++
			if i+1 < len(words) && !strings.Contains(";}", words[i+1]) {
				i++
				typ = words[i]
			}
			field(pkg, msg, oneof, n, name, typ)
		}
	}
}

func field(pkg, msg, oneof string, n int, name, typ string) {
	label := ""
	if bare, ok := strings.CutSuffix(name, "?"); ok {
		name, label = bare, " optional"
	} else if bare, ok := strings.CutSuffix(name, "[]"); ok {
		name, label = bare, " repeated"
	}
	if msg == "ToolCall" && oneof != "" {
		name, typ = name+"_tool_call", "="
	}
	if oneof != "" {
		label = " oneof " + oneof
	}
	set(pkg+"."+msg, n, name+" "+kind(pkg, msg, name, typ)+label)
}

func set(msg string, n int, line string) {
	if was := messages[msg][n]; was != "" {
		fmt.Fprintf(os.Stderr, "%s %d is %q and %q\n", msg, n, was, line)
		os.Exit(1)
	}
	messages[msg][n] = line
}

// kind gives the full type of a field.
func kind(pkg, msg, name, typ string) string {
	if s, ok := scalars[typ]; ok {
		return s
	}
	if inner, ok := strings.CutPrefix(typ, "map<str,"); ok {
		return "map<string," + kind(pkg, msg, name, strings.TrimSuffix(inner, ">")) + ">"
	}
	if bare, ok := strings.CutPrefix(typ, "a."); ok {
		pkg, typ = "agent.v1", bare
	}
	full := ""
	switch {
	case typ == "Value", typ == "Struct":
		full = "google.protobuf." + typ
	case strings.HasPrefix(typ, "google."):
		full = typ
	case short[typ] != "":
		full = pkg + "." + short[typ]
	case typ == "=" && (nested[msg] || nested[msg+"."+name]):
		full = pkg + "." + msg + "." + camel(name)
	case typ == "=" && msg == "SubagentType":
		full = pkg + ".SubagentType" + camel(name)
	case typ == "=":
		full = pkg + "." + camel(name)
	case typ == "=s":
		full = pkg + "." + strings.TrimSuffix(camel(name), "s")
	case typ == "=U":
		full = pkg + "." + camel(name) + "Update"
	case typ == "~":
		full = pkg + "." + stem(msg) + camel(name)
	case typ == "~T":
		full = pkg + "." + stem(msg) + "Tool" + camel(name)
	case typ[0] == '.':
		full = pkg + "." + msg + typ
	default:
		full = pkg + "." + typ
	}
	used[full] = true
	return full
}

func stem(msg string) string {
	if s, ok := strings.CutSuffix(msg, "ToolCall"); ok {
		return s
	}
	return strings.TrimSuffix(msg, "Result")
}

func camel(snake string) string {
	out := ""
	for word := range strings.SplitSeq(snake, "_") {
		out += strings.ToUpper(word[:1]) + word[1:]
	}
	return out
}

// pairs reads "2 shell, 45|46 pi_read PiReadExec": number, case, type less Args or Result.
func pairs(line string) {
	for item := range strings.SplitSeq(regexp.MustCompile(`\+[A-Z] `).ReplaceAllString(line, ""), ",") {
		words := strings.Fields(item)
		numbers := number.FindAllString(words[0], -1)
		typ := camel(words[1])
		if len(words) == 3 {
			typ = words[2]
		}
		for i, side := range []string{"Server", "Client"} {
			n, _ := strconv.Atoi(numbers[min(i, len(numbers)-1)])
			msg := "agent.v1.Exec" + side + "Message"
			if messages[msg] == nil {
				messages[msg] = map[int]string{}
			}
			end := []string{"args", "result"}[i]
			set(msg, n, fmt.Sprintf("%s_%s %s oneof message", words[1], end, kind("agent.v1", "", "", typ+camel(end))))
		}
	}
}
