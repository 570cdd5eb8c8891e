package persist

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

// picture is more than 1,024 characters of canonical base64, of pictureBytes.
var (
	pictureBytes = bytes.Repeat([]byte("\xfb\xef\xbe\x00p"), 200)
	picture      = base64.StdEncoding.EncodeToString(pictureBytes)
	pictureRef   = blobref.Of(pictureBytes).String()
)

func TestWhatTheRulesLeaveInTheLine(t *testing.T) {
	size := strconv.Itoa(len(pictureBytes))
	url := "data:image/gif;base64,R0lGOD"
	urlSafe := strings.NewReplacer("+", "-", "/", "_").Replace(picture)
	for name, c := range map[string]struct{ entry, line string }{
		"an image in content becomes a plain reference": {
			`{"message":{"content":[{"type":"image","data":"` + picture + `","mimeType":"image/png"}]}}`,
			`{"message":{"content":[{"type":"image","data":"` + pictureRef + `","mimeType":"image/png"}]}}`,
		},
		"so do images and frames, whose objects need no type": {
			`{"a":{"images":[{"data":"` + picture + `","mimeType":"IMAGE/PNG"}],"frames":[[{"mimeType":"image/png","data":"` + picture + `"}]]}}`,
			`{"a":{"images":[{"data":"` + pictureRef + `","mimeType":"IMAGE/PNG"}],"frames":[[{"mimeType":"image/png","data":"` + pictureRef + `"}]]}}`,
		},
		"and the result of image generation": {
			`{"x":[{"result":"` + picture + `","type":"image_generation_call"}]}`,
			`{"x":[{"result":"` + pictureRef + `","type":"image_generation_call"}]}`,
		},
		"a data URL goes whole, whatever its length": {
			`{"x":{"image_url":"` + url + `"}}`,
			`{"x":{"image_url":"` + blobref.Of([]byte(url)).String() + `"}}`,
		},
		"another URL stays": {`{"x":{"image_url":"https://example.org/a.png"}}`, ""},
		"base64 of 1023 characters stays": {
			`{"content":{"type":"image","data":"` + picture[:1020] + `AAA"}}`, "",
		},
		"data that is no base64 stays": {
			`{"content":[{"type":"image","data":"` + strings.Repeat("no base64 ", 200) + `"}]}`, "",
		},
		"base64 whose last bits are not zero stays": {
			`{"content":[{"type":"image","data":"` + picture[:1332] + `AB=="}]}`, "",
		},
		"url-safe base64 says how it was written": {
			`{"content":[{"type":"image","data":"` + urlSafe + `"}]}`,
			`{"content":[{"type":"image","data":"` + pictureRef + `"}],"externalized":[{"path":"/content/0/data","ref":"` + pictureRef + `","bytes":` + size + `,"form":"base64","alphabet":"url"}]}`,
		},
		"an image that oh-my-pi would not resolve leaves a picture of one pixel": {
			`{"message":{"role":"fileMention","files":[{"path":"a.gif","image":{"type":"image","data":"` + picture + `","mimeType":"image/gif"}}]}}`,
			`{"message":{"role":"fileMention","files":[{"path":"a.gif","image":{"type":"image","data":"` + pixelGIF + `","mimeType":"image/gif"}}]},` +
				`"externalized":[{"path":"/message/files/0/image/data","ref":"` + pictureRef + `","bytes":` + size + `,"form":"base64"}]}`,
		},
		"partialJson and jsonlEvents go from messages and details": {
			`{"partialJson":0,"message":{"content":[{"partialJson":"{","type":"toolCall","arguments":{"a":1},"jsonlEvents":[]}],"details":{"x":[{"jsonlEvents":1}]},"partialJson":1},"details":{"jsonlEvents":{"a":[1]},"partialJson":2}}`,
			`{"partialJson":0,"message":{"content":[{"type":"toolCall","arguments":{"a":1}}],"details":{"x":[{}]}},"details":{}}`,
		},
		"but not from the arguments of a tool call, whatever the order": {
			`{"message":{"content":[{"arguments":{"partialJson":1,"b":{"jsonlEvents":2}},"type":"toolCall","jsonlEvents":3}]}}`,
			`{"message":{"content":[{"arguments":{"partialJson":1,"b":{"jsonlEvents":2}},"type":"toolCall"}]}}`,
		},
		"nor from custom data": {`{"data":{"partialJson":1},"customType":"x"}`, ""},
		"signed content is not looked into": {
			`{"message":{"content":[{"images":[{"data":"` + picture + `","mimeType":"image/png"}],"type":"thinking","thinkingSignature":"s","partialJson":1}]}}`, "",
		},
		"an empty signature signs nothing": {
			`{"message":{"content":[{"type":"thinking","thinkingSignature":"","partialJson":1}]}}`,
			`{"message":{"content":[{"type":"thinking","thinkingSignature":""}]}}`,
		},
		"a string that only looks like a reference is marked": {
			`{"content":[{"type":"image","data":"` + pictureRef + `"}]}`,
			`{"content":[{"type":"image","data":"` + pictureRef + `"}],"externalized":[{"path":"/content/0/data","form":"literal"}]}`,
		},
		"elsewhere it is only text": {`{"content":[{"type":"text","text":"` + pictureRef + `"}]}`, ""},
		"an own list is put away in its place": {
			`{"externalized":[{"path":"/x","form":"literal"}],"content":[{"type":"image","data":"` + picture + `"}]}`,
			`{"externalized":[{"form":"own","value":[{"path":"/x","form":"literal"}]}],"content":[{"type":"image","data":"` + pictureRef + `"}]}`,
		},
		"an own member of another shape stays": {
			`{"externalized":[1],"content":[{"type":"image","data":"` + picture + `"}]}`,
			`{"externalized":[1],"content":[{"type":"image","data":"` + pictureRef + `"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.line == "" {
				c.line = c.entry
			}
			store := blobs{}
			line, err := Prepare(context.Background(), []byte(c.entry), store.put)
			if err != nil || string(line) != c.line {
				t.Fatalf("%v\n got %s\nwant %s", err, line, c.line)
			}
			if strings.Contains(c.entry, "partialJson") || strings.Contains(c.entry, "jsonlEvents") {
				return // does not come back
			}
			checkRoundTrip(t, standard, []byte(c.entry))
		})
	}
}

func TestLongStringsAreCutToTheUnit(t *testing.T) {
	const most = 500_000
	room := most - len(notice)
	cut := func(head string) string { return head + noticeLiteral }
	for name, c := range map[string]struct{ text, want string }{ // insides of literals
		"500,000 units stay":               {strings.Repeat("a", most), ""},
		"one more is cut":                  {strings.Repeat("a", most+1), cut(strings.Repeat("a", room))},
		"units are counted, not bytes":     {strings.Repeat("é", most), ""},
		"an escape is one unit":            {strings.Repeat(`\n`, most), ""},
		"a pair is not split":              {strings.Repeat("a", room-1) + strings.Repeat("\U0001F600", 100), cut(strings.Repeat("a", room-1))},
		"a pair that fits stays":           {strings.Repeat("a", room-2) + strings.Repeat("\U0001F600", 100), cut(strings.Repeat("a", room-2) + "\U0001F600")},
		"half a pair can be the last unit": {strings.Repeat("a", room-1) + `\ud83d` + strings.Repeat("b", 100), cut(strings.Repeat("a", room-1) + `\ud83d`)},
	} {
		t.Run(name, func(t *testing.T) {
			entry := []byte(`{"type":"custom","data":{"a/b":["","` + c.text + `"]}}`)
			store := blobs{}
			line, err := Prepare(context.Background(), entry, store.put)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if !bytes.Equal(line, entry) {
					t.Fatal("changed")
				}
				return
			}
			whole, err := ecmajson.Unquote([]byte(`"` + c.text + `"`))
			if err != nil {
				t.Fatal(err)
			}
			want := `{"type":"custom","data":{"a/b":["","` + c.want + `"]},"externalized":[{"path":"/data/a~1b/1","ref":"` +
				blobref.Of(whole).String() + `","bytes":` + strconv.Itoa(len(whole)) + `}]}`
			if string(line) != want {
				t.Fatalf("got ...%s", line[max(0, len(line)-400):])
			}
			if n := ecmajson.UTF16Len([]byte(`"` + c.want + `"`)); n != most && n != most-1 {
				t.Fatalf("cut to %d units", n)
			}
			checkRoundTrip(t, standard, entry)
		})
	}
}

func TestLineCountIsThatOfTheCutContent(t *testing.T) {
	content := strings.Repeat(`line\n`, 40)
	entry := []byte(`{"message":{"files":[{"lineCount":4.15e+301,"content":"` + content + `"}]}}`)
	line, err := small.prepare(context.Background(), entry, blobs{}.put)
	if err != nil {
		t.Fatal(err)
	}
	kept := (small.text-len(notice))/5 + 1 + 2
	if !strings.Contains(string(line), `"lineCount":`+strconv.Itoa(kept)+`,`) || !strings.Contains(string(line), `,"lineCount":4.15e+301}]`) {
		t.Fatalf("want %d lines in %s", kept, line)
	}
	checkRoundTrip(t, small, entry)
}

func TestSignedContentOfAnySizeStays(t *testing.T) {
	long := strings.Repeat("QUJD", 200_000)
	for _, block := range []string{
		`{"type":"thinking","thinking":"%","thinkingSignature":"%"}`, `{"type":"text","text":"%","textSignature":"s"}`,
		`{"type":"toolCall","arguments":{"x":"%"},"thoughtSignature":"s"}`, `{"type":"redactedThinking","data":"%"}`,
		`{"type":"reasoning","encrypted_content":"%","summary":"%"}`, `{"type":"anthropicServerTool","block":{"content":"%"}}`,
		`{"type":"other","thinkingSignature":"%","thoughtSignature":"%","textSignature":"%","encrypted_content":"%"}`,
	} {
		entry := []byte(`{"message":{"content":[` + strings.ReplaceAll(block, "%", long) + `]}}`)
		line, err := Prepare(context.Background(), entry, blobs{}.put)
		if err != nil || !bytes.Equal(line, entry) {
			t.Errorf("%s: touched, %v", block, err)
		}
	}
}

func TestDataThatDoesNotDecodeIsCutOnlyWithAWayBack(t *testing.T) {
	entry := []byte(`{"message":{"content":[{"type":"image","data":"` + strings.Repeat("not base64! ", 50_000) + `","mimeType":"image/png"}]}}`)
	line, err := Prepare(context.Background(), entry, blobs{}.put)
	if err != nil || len(line) > 510_000 {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	checkRoundTrip(t, standard, entry)
}

func TestMissingAndChangedContentIsReportedAndStays(t *testing.T) {
	long := strings.Repeat("z", 600_000)
	entry := []byte(`{"a":"` + long + `","content":[{"type":"image","data":"` + picture + `"}],"file":{"image":{"type":"image","data":"` + picture + `"}},"u":{"image_url":"data:image/png;base64,AAAA"}}`)
	store := blobs{}
	line, err := Prepare(context.Background(), entry, store.put)
	if err != nil {
		t.Fatal(err)
	}
	back, missing, err := Restore(context.Background(), line, blobs{}.get)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, m := range missing {
		if !errors.Is(m.Err, errAbsent) || m.Ref.IsZero() {
			t.Errorf("missing %+v", m)
		}
		paths = append(paths, m.Path)
	}
	if got := strings.Join(paths, " "); got != "/a /content/0/data /file/image/data /u/image_url" {
		t.Errorf("missing at %s", got)
	}
	if n := bytes.Count(back, []byte(`"data":"`+pictureRef+`"`)); n != 2 {
		t.Errorf("%d references in place of data, want 2: nobody may take a stand-in for the image", n)
	}
	edited := bytes.Replace(line, []byte(`"a":"z`), []byte(`"a":"Z`), 1)
	back, missing, err = Restore(context.Background(), edited, store.get)
	if err != nil || len(missing) != 1 || missing[0].Path != "/a" || !errors.Is(missing[0].Err, ErrChanged) {
		t.Fatalf("edited string: missing %v, %v", missing, err)
	}
	if !bytes.Contains(back, []byte(`"a":"Zzz`)) || !bytes.Contains(back, []byte(`"externalized":[{"path":"/a"`)) {
		t.Error("the edited string, or its way back, was lost")
	}
}

func TestALineOfOthersIsResolvedWhereTheyWouldResolveIt(t *testing.T) {
	store := blobs{}
	if _, err := store.put(context.Background(), pictureBytes); err != nil {
		t.Fatal(err)
	}
	line := `{ "type" : "message", "message": { "content": [ {"type":"image", "d\u0061ta": "` + pictureRef + `"} ], "x": {"type":"image","data":"` + pictureRef + `"} }, "crc":"00000000"}`
	back, missing, err := Restore(context.Background(), []byte(line), store.get)
	if want := strings.Replace(line, pictureRef, picture, 1); err != nil || len(missing) > 0 || string(back) != want {
		t.Fatalf("%s\n%v %v", back, missing, err)
	}
}

func TestAPutThatFailsFailsTheEntry(t *testing.T) {
	full := errors.New("disk full")
	entry := []byte(`{"content":[{"type":"image","data":"` + picture + `"}]}`)
	line, err := Prepare(context.Background(), entry, func(context.Context, []byte) (blobref.Ref, error) { return blobref.Ref{}, full })
	if line != nil || !errors.Is(err, full) || !strings.Contains(err.Error(), "/content/0/data") {
		t.Fatalf("%s, %v", line, err)
	}
}

func TestTheEndOfTheContextEndsRestore(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	line := []byte(`{"content":[{"type":"image","data":"` + pictureRef + `"}]}`)
	_, _, err := Restore(ctx, line, func(ctx context.Context, _ blobref.Ref) ([]byte, error) {
		cancel()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestDepthIsNoMatterOfTheGoStack(t *testing.T) {
	inner := `{"images":[{"mimeType":"image/png","data":"` + picture + `"}],"content":"` + strings.Repeat("x", 600_000) + `"}`
	for _, depth := range []int{9_000, 300_000} {
		for _, pair := range [][2]string{{"[", "]"}, {`{"k":`, "}"}} {
			entry := []byte(`{"data":` + strings.Repeat(pair[0], depth) + inner + strings.Repeat(pair[1], depth) + `}`)
			checkRoundTrip(t, standard, entry)
			line, err := Prepare(context.Background(), entry, blobs{}.put)
			if err != nil {
				t.Fatal(err)
			}
			if deep := depth > maxPointer; !deep && len(line) > 590_000 || deep && !bytes.Equal(line, entry) {
				t.Errorf("%d levels of %s: line of %d bytes", depth, pair[0], len(line))
			}
		}
	}
}

func TestImagesAreListedBeforeAndAfter(t *testing.T) {
	url := "data:image/webp;base64,UklGRg=="
	entry := []byte(`{"message":{"content":[{"type":"image","data":"` + picture + `","mimeType":"image/png"},{"type":"image","data":"AAAA","mimeType":"image/gif"}],` +
		`"files":[{"image":{"type":"image","mimeType":"image/jpeg","data":"` + strings.TrimRight(picture, "=") + `"}}],"u":{"image_url":"` + url + `"}}}`)
	store := blobs{}
	line, err := Prepare(context.Background(), entry, store.put)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		path, mime string
		data       []byte
		inLine     bool
	}{
		{"/message/content/0/data", "image/png", pictureBytes, false},
		{"/message/content/1/data", "image/gif", []byte{0, 0, 0}, true},
		{"/message/files/0/image/data", "image/jpeg", pictureBytes, false},
		{"/message/u/image_url", "image/webp", []byte("RIFF"), false},
	}
	for _, text := range [][]byte{entry, line} {
		for i, w := range want {
			img, ok := ImageAt(text, i)
			if !ok || img.Path != w.path || img.Ref.IsZero() != (w.inLine || &text[0] == &entry[0]) {
				t.Fatalf("image %d: %+v, %v", i, img, ok)
			}
			data, mime, err := img.Load(context.Background(), store.get)
			if err != nil || !bytes.Equal(data, w.data) || mime != w.mime {
				t.Errorf("image %d: %d bytes of %s, %v", i, len(data), mime, err)
			}
		}
		if _, ok := ImageAt(text, len(want)); ok {
			t.Error("one image too many")
		}
	}
}

func TestBase64ComesBackInEveryHand(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want encoding
		no   bool
	}{
		"canonical":                       {text: "AAAA++//AA==", want: encoding{}},
		"url-safe":                        {text: "AAAA--__AA==", want: encoding{url: true}},
		"unpadded":                        {text: "AAAA++//AA", want: encoding{unpadded: true}},
		"url-safe, unpadded":              {text: "AAAA--__AA", want: encoding{url: true, unpadded: true}},
		"lines of 4":                      {text: "AAAA\n++//\nAA==", want: encoding{wrap: 4, newline: "\n"}},
		"lines of 5 with CRLF at the end": {text: "AAAA+\r\n+//AA\r\n==\r\n", want: encoding{wrap: 5, newline: "\r\n", trailing: true}},
		"one line with an end":            {text: "AAAA++//\n", want: encoding{wrap: 8, newline: "\n", trailing: true}},
		"both alphabets":                  {text: "AAAA+-//AA==", no: true},
		"lines of odd length":             {text: "AAAA\n++\n//AA==", no: true},
		"an empty first line":             {text: "\nAAAA", no: true},
		"mixed line ends":                 {text: "AAAA\n++//\r\nAA==", no: true},
		"a lone CR":                       {text: "AAAA\r++//", no: true},
		"space":                           {text: "AAAA ++//", no: true},
		"padding within":                  {text: "AA==AAAA", no: true},
		"bits to spare":                   {text: "AAAAAB==", no: true},
		"a digit too many":                {text: "AAAAA", no: true},
	} {
		t.Run(name, func(t *testing.T) {
			data, e, ok := decodeBase64([]byte(c.text))
			if ok == c.no || ok && e != c.want {
				t.Fatalf("%+v, %v", e, ok)
			}
			if ok && string(e.append(nil, data)) != c.text {
				t.Fatalf("written again: %q", e.append(nil, data))
			}
			long := strings.Repeat("AAAA", 300) + c.text
			if !ok {
				long = c.text + strings.Repeat("AAAA", 300)
			} else if c.want.wrap > 0 {
				long = string(c.want.append(nil, make([]byte, 1000)))
			}
			lit := ecmajson.AppendString(nil, long)
			for _, place := range []string{`{"content":[{"type":"image","data":%}]}`, `{"x":{"data":%,"mimeType":"image/webp"}}`, `{"type":"image_generation_call","result":%}`} {
				entry := []byte(strings.Replace(place, "%", string(lit), 1))
				checkRoundTrip(t, standard, entry)
				line, err := Prepare(context.Background(), entry, blobs{}.put)
				if err != nil || bytes.Equal(line, entry) == ok {
					t.Errorf("%s: in the blob store is %v, want %v (%v)", place, !bytes.Equal(line, entry), ok, err)
				}
			}
		})
	}
}

func TestRefsFindsWhateverIsCited(t *testing.T) {
	a, b := blobref.Of([]byte("a")), blobref.Of([]byte("b"))
	entry := []byte(`{"x":"` + a.String() + `","t":"see ` + b.String() + `, ` + a.String() + ` and blob:sha256:` + strings.ToUpper(b.Hex()) + ` blob:sha256:0"}`)
	if got := Refs(entry); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("%v", got)
	}
	if got := Refs(shortEntry); got != nil {
		t.Errorf("%v in an entry that cites none", got)
	}
}

func TestAPlainEntryCostsNoAllocation(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		if !Plain(shortEntry) {
			t.Fatal("not plain")
		}
		if out, err := Prepare(context.Background(), shortEntry, nil); err != nil || &out[0] != &shortEntry[0] {
			t.Fatal("touched", err)
		}
		if out, _, err := Restore(context.Background(), shortEntry, nil); err != nil || &out[0] != &shortEntry[0] {
			t.Fatal("touched", err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWhatIsNoObjectIsRefused(t *testing.T) {
	long := strings.Repeat("x", 600_000)
	for _, entry := range []string{`"` + long + `"`, `["` + long + `"]`, `{"a":"` + long, `{"a":"` + long + `"`, `{"a":"` + long + `"} `, `{"a" "` + long + `"}`, `{"a":"` + long + `"}{}`, `{"a":"` + long + `","b":`, `{"a":"` + long + `\x"}`} {
		if line, err := Prepare(context.Background(), []byte(entry), blobs{}.put); err == nil || line != nil {
			t.Errorf("%s...%s accepted", entry[:8], entry[len(entry)-5:])
		}
	}
}

func TestABlobThatIsNoDataURLStaysAReference(t *testing.T) {
	store := blobs{}
	ref, err := store.put(context.Background(), []byte("\xffnot a URL"))
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(`{"image_url":"` + ref.String() + `"}`)
	back, missing, err := Restore(context.Background(), line, store.get)
	if err != nil || len(missing) != 1 || !errors.Is(missing[0].Err, ErrNotURL) || !bytes.Equal(back, line) {
		t.Errorf("%s, %v, %v", back, missing, err)
	}
}

func TestStandInsDecode(t *testing.T) {
	for _, s := range []string{pixelPNG, pixelGIF, pixelWebP, pixelJPEG} {
		if _, e, ok := decodeBase64([]byte(s)); !ok || e != (encoding{}) || len(s) >= standard.image || !isStandIn(s) {
			t.Errorf("%s", s)
		}
	}
}

func TestRealSessionsComeBack(t *testing.T) {
	dir := os.Getenv("AGENTRUN_TEST_DATA")
	if dir == "" {
		for up := "."; ; up = filepath.Join("..", up) {
			abs, err := filepath.Abs(up)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(abs, "shared", "data")); err == nil {
				dir = filepath.Join(abs, "shared", "data")
				break
			}
			if abs == filepath.Dir(abs) {
				t.Skip("real inputs absent: no shared/data above the working directory")
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "pi-sessions", "*.jsonl"))
	more, err2 := filepath.Glob(filepath.Join(dir, "pi-sessions", "fixtures", "*.jsonl"))
	if err != nil || err2 != nil || len(files)+len(more) == 0 {
		t.Skip("real inputs absent: no pi-sessions in " + dir)
	}
	changed := 0
	for _, name := range append(files, more...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			entry, err := ecmajson.AppendNormal(nil, line)
			if err != nil || entry[0] != '{' {
				continue // damaged: not for this package
			}
			for _, l := range []limits{standard, small, {text: 1000, image: 100}} {
				if bytes.Contains(entry, []byte(`"partialJson":`)) || bytes.Contains(entry, []byte(`"jsonlEvents":`)) {
					continue
				}
				checkRoundTrip(t, l, entry)
				if !l.plain(entry) {
					changed++
				}
			}
		}
	}
	if changed < 100 {
		t.Errorf("only %d entries met a rule", changed)
	}
}

// FuzzRestore shows that no line, however hostile, makes Restore or Prepare
// fail but by an error, and that what Prepare takes comes back.
func FuzzRestore(f *testing.F) {
	store := blobs{}
	some, err := store.put(context.Background(), []byte("some"))
	if err != nil {
		f.Fatal(err)
	}
	ref := some.String()
	for _, s := range []string{
		`{"content":[{"type":"image","data":"` + ref + `"}]}`,
		`{"a":"x","externalized":[{"path":"/a","ref":"` + ref + `","bytes":4},{"path":"/externalized/0/path","ref":"` + ref + `","bytes":4,"form":"base64","wrap":1,"newline":"\n"}]}`,
		`{"externalized":[{"form":"own","value":{"image_url":"` + ref + `"}},{"path":"/externalized/image_url","form":"literal"}],"z":1}`,
		`{"message":{"content":[{"arguments":{"partialJson":1},"type":"toolCall","jsonlEvents":[1,{"a":2}]}]}}`,
		`{"content":"` + strings.Repeat("a", 200) + `","lineCount":1,"content":"` + ref + `"}`,
		`{`, `{"a`, `{"a":`, `{"a":"` + ref, `[`, `{"a":[}`, `{"externalized":` + ref, `{"externalized":[{"form":"own","value":` + ref,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, l := range []limits{standard, small} {
			if out, _, err := l.restore(context.Background(), b, store.get); err == nil && ecmajson.Valid(b) && !ecmajson.Valid(out) {
				t.Fatalf("restored to invalid JSON\nfrom %s\nto   %s", b, out)
			}
			for range l.images(b) {
			}
			if _, err := l.prepare(context.Background(), b, blobs{}.put); err != nil {
				continue
			}
			if entry, err := ecmajson.AppendNormal(nil, b); err == nil && entry[0] == '{' && !bytes.Contains(entry, []byte("partialJson")) && !bytes.Contains(entry, []byte("jsonlEvents")) {
				checkRoundTrip(t, l, entry)
			}
		}
	})
}
