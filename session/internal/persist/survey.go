package persist

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

// errNotObject means that what was given is not one JSON object.
var errNotObject = errors.New("entry is not a JSON object")

// siteKind says what the rules have to do with a place of an entry.
type siteKind uint8

const (
	siteItem  siteKind = iota // a string that an item of the list names
	siteImage                 // base64 of an image, or a reference instead
	siteURL                   // a string under the key image_url
	siteText                  // a string that is too long
	siteDrop                  // a member that is not kept
)

// site is a place that the rules have something to say about.
type site struct {
	span      // of the string literal, or all that a dropped member takes with it
	kind      siteKind
	resolved  bool   // siteImage: readers of the format resolve a reference here
	mime      span   // siteImage: literal of the mimeType beside it, if any
	lineCount span   // siteText, siteItem: number beside it that counts its lines
	path      []byte // JSON pointer, WTF-8
	item      int    // siteItem: index into the list
}

// frame is an open container. Fields below the line are of objects only.
type frame struct {
	object bool
	start  int
	key    []byte // name of the nearest enclosing member; elements of an array inherit it
	index  int    // of the current element
	path   int    // length of the pointer to here
	drops  bool   // whether rule 2 holds within
	sites  int    // how many sites there were when it was opened
	at     *pointers

	name      []byte // decoded name of the current member
	value     int    // where its value starts
	from      int    // where the member itself starts
	kept      int    // where the last kept member ends
	kind      blockKind
	signs     signs
	data      span
	result    span
	mime      span
	arguments span
	lineCount span
	content   int // 1 + index of the site of its content, if that is a string and a site
}

// blockKind is what the member type says, as far as the rules care.
type blockKind uint8

const (
	otherBlock blockKind = iota
	imageBlock
	generatedImage
	thinkingBlock
	textBlock
	toolCall
	redactedThinking
	reasoning
	serverTool
)

var blockKinds = map[string]blockKind{
	`"image"`: imageBlock, `"image_generation_call"`: generatedImage, `"thinking"`: thinkingBlock, `"text"`: textBlock,
	`"toolCall"`: toolCall, `"redactedThinking"`: redactedThinking, `"reasoning"`: reasoning, `"anthropicServerTool"`: serverTool,
}

// signs are the members that make a block signed or encrypted.
type signs uint8

const (
	thinkingSignature signs = 1 << iota
	textSignature
	thoughtSignature
	encryptedContent
	wholeBlock
)

// survey walks over an entry once and collects its sites. The stack of open
// containers is a slice, so nesting is bounded by memory alone.
type survey struct {
	limits
	text   []byte
	task   task
	frames []frame
	sites  []site
	calls  []span // arguments of tool calls within which nothing is dropped
}

// task is what a survey is for.
type task uint8

const (
	preparing task = iota
	restoring
	listing // images of any size, inline or not
	texts   // every string that is a text: no signature, no ciphertext, nothing signed, no image
)

// run walks over text, which must be valid JSON. The pointers say which strings
// are of interest beyond those that the rules find themselves.
func (s *survey) run(text []byte, named *pointers) error {
	s.text = text
	i := s.space(0)
	if i == len(text) || text[i] != '{' {
		return errNotObject
	}
	s.open(i, nil, named)
	for i++; len(s.frames) > 0; {
		if i = s.space(i); i == len(text) {
			return errNotObject
		}
		f := &s.frames[len(s.frames)-1]
		switch text[i] {
		case '}', ']':
			s.close(f)
			s.frames = s.frames[:len(s.frames)-1]
			i++
			if len(s.frames) > 0 {
				s.done(i)
			}
			continue
		case ',':
			i = s.space(i + 1)
		}
		if f.object {
			f.from = i
			end := ecmajson.ValueEnd(text, i)
			f.name = decodeName(text[i:end])
			if i = s.space(end); i == len(text) || text[i] != ':' {
				return errNotObject
			}
			i = s.space(i + 1)
		}
		if i == len(text) {
			return errNotObject
		}
		f.value = i
		if (text[i] == '{' || text[i] == '[') && (s.task == texts || f.path+f.tokenLen() < maxPointer) {
			s.open(i, f, nil)
			i++
			continue
		}
		end := ecmajson.ValueEnd(text, i)
		if end == i {
			return errNotObject
		}
		if text[i] == '"' {
			s.str(f, span{i, end})
		}
		i = end
		s.done(i)
	}
	if s.space(i) != len(text) {
		return errNotObject
	}
	return nil
}

func (s *survey) space(i int) int { return skipSpace(s.text, i) }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// decodeName gives the name for a key literal. Names of members that the rules
// know never need escapes, so this hardly ever decodes.
func decodeName(lit []byte) []byte {
	if name, err := ecmajson.Unquote(lit); err == nil {
		return name
	}
	return lit
}

// open enters the container at i, a value in f or, without one, the entry.
func (s *survey) open(i int, f *frame, at *pointers) {
	in := frame{object: s.text[i] == '{', start: i, kept: i + 1, index: 0, sites: len(s.sites), at: at}
	if f != nil {
		in.key, in.at, in.drops = f.childKey(), f.child(), f.drops
		in.path = f.path + f.tokenLen()
		if len(s.frames) == 1 {
			switch string(f.name) {
			case "message", "content", "details":
				in.drops = true
			}
		}
	}
	s.frames = append(s.frames, in)
}

// childKey is the name of the nearest member around the current value of f.
func (f *frame) childKey() []byte {
	if f.object {
		return f.name
	}
	return f.key
}

func (f *frame) child() *pointers {
	if f.object {
		return f.at.member(f.name)
	}
	return f.at.element(f.index)
}

// tokenLen is what the current member or element adds to a pointer.
func (f *frame) tokenLen() int {
	if f.object {
		return tokenLen(f.name)
	}
	n := 2
	for i := f.index; i >= 10; i /= 10 {
		n++
	}
	return n
}

// str looks at a string, the current value of f.
func (s *survey) str(f *frame, v span) {
	lit, key := v.of(s.text), f.childKey()
	if s.task == texts {
		if !sealed(key) && !isImageURL(lit) && !isWord(key, lit) {
			s.sites = append(s.sites, site{span: v, kind: siteText})
		}
		return
	}
	if p := f.child(); p != nil && p.item > 0 {
		s.add(f, site{span: v, kind: siteItem, item: p.item - 1}, nil)
	}
	if string(key) == "image_url" && (isRef(lit) || s.task != restoring && isImageURL(lit)) {
		s.add(f, site{span: v, kind: siteURL, resolved: true}, nil)
	}
	if s.task == preparing && len(lit) > s.limits.text && !sealed(key) && ecmajson.UTF16Len(lit) > s.limits.text {
		s.add(f, site{span: v, kind: siteText}, nil)
	}
}

// sealed reports whether strings under key are signatures or ciphertext.
func sealed(key []byte) bool {
	switch string(key) {
	case "thinkingSignature", "thoughtSignature", "textSignature", "encrypted_content":
		return true
	}
	return false
}

// isWord reports whether the literal is a word of the format, by its member and by what it is made of: a secret that
// is an ordinary word must not make a log one that nobody reads.
func isWord(key, lit []byte) bool {
	switch string(key) {
	case "type", "role", "customType", "stopReason":
		return len(lit) >= 2 && len(lit) <= 48 && len(bytes.Trim(lit[1:len(lit)-1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-")) == 0
	}
	return false
}

// isRef reports whether the literal is a reference.
func isRef(lit []byte) bool {
	_, ok := parseRef(lit)
	return ok
}

func parseRef(lit []byte) (blobref.Ref, bool) {
	if len(lit) != blobref.TextLen+2 {
		return blobref.Ref{}, false
	}
	ref, err := blobref.Parse(string(lit[1 : len(lit)-1]))
	return ref, err == nil
}

// isImageURL is the test by which oh-my-pi knows a data URL of an image.
func isImageURL(lit []byte) bool {
	return bytes.HasPrefix(lit, []byte(`"data:image/`)) && bytes.Contains(lit, []byte(";base64,"))
}

// add records a site under the pointer to the current value of f, or to its
// member name if given.
func (s *survey) add(f *frame, at site, name []byte) {
	size := f.path + f.tokenLen()
	if name != nil {
		size = f.path + tokenLen(name)
	}
	if size > maxPointer {
		return
	}
	at.path = make([]byte, 0, size)
	for k := range s.frames {
		g := &s.frames[k]
		switch {
		case g == f && name != nil:
			at.path = appendToken(at.path, name)
		case g.object:
			at.path = appendToken(at.path, g.name)
		default:
			at.path = strconv.AppendInt(append(at.path, '/'), int64(g.index), 10)
		}
	}
	s.sites = append(s.sites, at)
}

// done is called when the current value of the innermost container ends at end.
func (s *survey) done(end int) {
	f := &s.frames[len(s.frames)-1]
	if !f.object {
		f.index++
		return
	}
	v := span{f.value, end}
	f.note(s, v)
	if s.task == preparing && f.drops && (string(f.name) == "partialJson" || string(f.name) == "jsonlEvents") {
		gone := span{f.kept, end} // with the comma before it, if it is the last
		if next := s.space(end); next < len(s.text) && s.text[next] == ',' {
			gone = span{f.from, s.space(next + 1)}
		}
		s.sites = append(s.sites, site{span: gone, kind: siteDrop})
		return
	}
	f.kept = end
}

// note remembers the members that tell what kind of object f is.
func (f *frame) note(s *survey, v span) {
	lit := v.of(s.text)
	text := span{} // v, if it is a string
	if lit[0] == '"' {
		text = v
	}
	switch string(f.name) {
	case "type":
		f.kind = blockKinds[string(lit)]
	case "data":
		f.data = text
	case "result":
		f.result = text
	case "mimeType":
		f.mime = text
	case "arguments":
		f.arguments = v
	case "lineCount":
		f.lineCount = span{}
		if ecmajson.Value(lit).Kind() == '0' {
			f.lineCount = v
		}
	case "content":
		f.content = 0
		if n := len(s.sites); n > f.sites && s.sites[n-1].span == v {
			f.content = n
		}
	case "thinkingSignature":
		f.sign(thinkingSignature, len(lit) > 2 && lit[0] == '"')
	case "textSignature":
		f.sign(textSignature, len(lit) > 2 && lit[0] == '"')
	case "thoughtSignature":
		f.sign(thoughtSignature, len(lit) > 2 && lit[0] == '"')
	case "encrypted_content":
		f.sign(encryptedContent, len(lit) > 2 && lit[0] == '"')
	case "block":
		f.sign(wholeBlock, lit[0] == '{')
	}
}

func (f *frame) sign(mark signs, set bool) {
	f.signs &^= mark
	if set {
		f.signs |= mark
	}
}

// signed reports whether rule 4 holds for the object.
func (f *frame) signed() bool {
	switch f.kind {
	case thinkingBlock:
		return f.signs&thinkingSignature != 0
	case textBlock:
		return f.signs&textSignature != 0
	case toolCall:
		return f.signs&thoughtSignature != 0
	case reasoning:
		return f.signs&encryptedContent != 0
	case serverTool:
		return f.signs&wholeBlock != 0
	case redactedThinking:
		return f.data.end-f.data.start > 2
	}
	return false
}

// close judges a container once all its members are known.
func (s *survey) close(f *frame) {
	if !f.object {
		return
	}
	if f.signed() {
		s.sites = s.sites[:f.sites]
		return
	}
	if s.task == texts {
		s.sparePicture(f)
		return
	}
	if f.content > 0 {
		s.sites[f.content-1].lineCount = f.lineCount
	}
	if f.kind == toolCall && f.drops && !f.arguments.empty() {
		s.calls = append(s.calls, f.arguments)
	}
	if f.kind == generatedImage && !f.result.empty() {
		s.image(f, site{span: f.result, resolved: true}, "result")
	}
	if !f.data.empty() && (f.kind == imageBlock || f.imageType(s.text)) {
		resolved := false
		switch string(f.key) {
		case "content":
			resolved = f.kind == imageBlock
		case "images", "frames":
			resolved = true
		}
		s.image(f, site{span: f.data, resolved: resolved, mime: f.mime}, "data")
	}
}

// sparePicture takes the data of an image from the texts.
func (s *survey) sparePicture(f *frame) {
	var data span
	switch {
	case f.kind == generatedImage:
		data = f.result
	case f.kind == imageBlock || f.imageType(s.text):
		data = f.data
	}
	if data.empty() {
		return
	}
	for i := f.sites; i < len(s.sites); i++ {
		if s.sites[i].span == data {
			s.sites = append(s.sites[:i], s.sites[i+1:]...)
			return
		}
	}
}

// imageType reports whether the mimeType of the object says that it is an image.
func (f *frame) imageType(text []byte) bool {
	const prefix = `"image/`
	lit := f.mime.of(text)
	return len(lit) > len(prefix) && bytes.EqualFold(lit[:len(prefix)], []byte(prefix))
}

// image records image data if the task has to do with it.
func (s *survey) image(f *frame, at site, name string) {
	lit := at.of(s.text)
	at.kind = siteImage
	switch s.task {
	case preparing:
		if len(lit)-2 < s.limits.image && !(at.resolved && isRef(lit)) {
			return
		}
	case restoring:
		if !at.resolved || !isRef(lit) {
			return
		}
	}
	s.add(f, at, []byte(name))
}
