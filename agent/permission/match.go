package permission

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// call is a call as patterns see it.
type call struct {
	tool      string
	arguments map[string]json.RawMessage
	commands  []string // the simple commands of a script
	bare      []string // those of them that set variables, without that
	unclear   bool     // not all of them are known
	deciding  string   // which of the commands is decided on; "" is what is not known

	dir   string             // where relative paths begin
	real  string             // that without symbolic links
	named map[string][]named // what arguments name, by the name of an argument, as far as it was asked for
}

// read takes a call apart. Relative paths in it begin at dir, "" for the working directory.
func read(dir, tool string, arguments json.RawMessage) (*call, error) {
	c := &call{tool: tool}
	var err error
	if c.dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("the working directory is not known: %w", err)
	}
	if c.real, err = filepath.EvalSymlinks(c.dir); err != nil {
		c.real = c.dir
	}
	if len(arguments) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(arguments, &c.arguments); err != nil {
		return nil, errors.New("the arguments are no JSON object")
	}
	if tool == "bash" {
		var script string
		if json.Unmarshal(c.arguments["command"], &script) != nil {
			c.unclear = true
			return c, nil
		}
		c.commands, c.bare, c.unclear = simpleCommands(script)
	}
	return c, nil
}

// parts are what is decided on one by one.
func (c *call) parts() []string {
	if c.unclear || len(c.commands) == 0 {
		return append(slices.Clip(c.commands), "")
	}
	return c.commands
}

// matches reports whether a rule holds for the call.
func (c *call) matches(r *Rule) bool {
	if !match(r.Tool, c.tool) {
		return false
	}
	for name, pattern := range r.Match {
		if !c.matchesArgument(r.Action, name, pattern) {
			return false
		}
	}
	return true
}

func (c *call) matchesArgument(action Action, name, pattern string) bool {
	if c.tool == "bash" && name == "command" && pattern != "*" {
		return c.matchesCommand(action, pattern)
	}
	if isPath(name) {
		return c.matchesPath(action, name, pattern)
	}
	values := texts(c.arguments[name])
	for _, value := range values {
		// One element that is not allowed is enough to allow none.
		if ok := match(pattern, value); ok != (action == Allow) {
			return ok
		}
	}
	return action == Allow && len(values) > 0
}

// matchesCommand compares a pattern with a script: one that allows with the simple command that is decided on, another
// one with everything that runs.
func (c *call) matchesCommand(action Action, pattern string) bool {
	if action == Allow {
		return c.deciding != "" && match(pattern, c.deciding)
	}
	for _, command := range slices.Concat(texts(c.arguments["command"]), c.commands, c.bare) {
		if match(pattern, command) {
			return true
		}
	}
	return false
}

// Literal is the pattern that matches a text, and nothing else.
func Literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(text)
}

// texts is the value of an argument as patterns see it.
func texts(value json.RawMessage) []string {
	if len(value) == 0 {
		return []string{""}
	}
	var s string
	if json.Unmarshal(value, &s) == nil && value[0] == '"' {
		return []string{s}
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil && value[0] == '[' {
		var all []string
		for _, v := range list {
			all = append(all, texts(v)...)
		}
		return all
	}
	return []string{string(value)}
}

// simpleCommands returns the simple commands of a script, those in pipes, lists and substitutions too, each as its
// words with a space between them: also assignments, which may lead a command elsewhere, and redirections that write
// a file, as they are written. bare are the commands that have assignments, without those. unclear is set when there may
// be others: the script cannot be read, or the name of a command is only known when it runs.
func simpleCommands(script string) (commands, bare []string, unclear bool) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, nil, true
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.CallExpr:
			var words []string
			for _, assign := range node.Assigns { // a PATH of its own is another command
				words = append(words, source(script, assign))
			}
			for i, word := range node.Args {
				text, known := literal(word)
				unclear = unclear || i == 0 && !known
				words = append(words, text)
			}
			commands = append(commands, strings.Join(words, " "))
			if len(node.Assigns) > 0 && len(node.Args) > 0 {
				bare = append(bare, strings.Join(words[len(node.Assigns):], " "))
			}
		case *syntax.DeclClause:
			commands = append(commands, source(script, node))
		case *syntax.Redirect:
			if writes(node) {
				commands = append(commands, source(script, node))
			}
		}
		return true
	})
	return commands, bare, unclear
}

// writes reports whether a redirection may write a file.
func writes(r *syntax.Redirect) bool {
	switch r.Op {
	case syntax.RdrIn, syntax.DplIn, syntax.DplOut, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return false
	}
	name, known := literal(r.Word)
	return !known || name != "/dev/null"
}

// literal is a word as it is known before it runs: its quotes taken off, and what is not known as it is written.
func literal(word *syntax.Word) (text string, known bool) {
	known = true
	var b strings.Builder
	var add func(parts []syntax.WordPart, quoted bool)
	add = func(parts []syntax.WordPart, quoted bool) {
		for _, part := range parts {
			switch part := part.(type) {
			case *syntax.Lit:
				b.WriteString(unescape(part.Value, quoted))
			case *syntax.SglQuoted:
				b.WriteString(part.Value)
				known = known && !part.Dollar
			case *syntax.DblQuoted:
				add(part.Parts, true)
			default:
				known = false
				b.WriteByte('$')
			}
		}
	}
	add(word.Parts, false)
	return b.String(), known
}

// unescape takes backslashes off that a shell takes off.
func unescape(s string, quoted bool) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte("$`\"\\\n", s[i+1]) >= 0) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// source is a part of a script as it is written.
func source(script string, node syntax.Node) string {
	return script[node.Pos().Offset():node.End().Offset()]
}

// match reports whether a pattern matches all of s. It takes time in proportion to the product of their lengths.
func match(pattern, s string) bool {
	star, mark := -1, 0 // the last *, and where what it stands for ends
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && matchOne(pattern, s, &p, &i):
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne compares one character, and goes on behind it in both if it is the same.
func matchOne(pattern, s string, p, i *int) bool {
	at, n := *p, 1
	switch c := pattern[at]; {
	case c == '?':
		_, n = utf8.DecodeRuneInString(s[*i:])
	case c == '\\' && at+1 < len(pattern):
		at++
		if pattern[at] != s[*i] {
			return false
		}
	case c != s[*i]:
		return false
	}
	*p, *i = at+1, *i+n
	return true
}
