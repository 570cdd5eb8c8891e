package ecmajson

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// script reads one value a line and writes JSON.stringify(JSON.parse(line)).
const script = `
const out = [];
for (const line of require("fs").readFileSync(process.argv[1], "utf8").split("\n")) {
	if (line !== "") out.push(JSON.stringify(JSON.parse(line)));
}
process.stdout.write(out.join("\n") + "\n");
`

// survivors are numbers that a double gives back, one way to write each.
func survivor(r *rand.Rand) string {
	switch r.IntN(5) {
	case 0:
		return strconv.FormatFloat(math.Float64frombits(r.Uint64()&^(0x7FF<<52)|uint64(r.IntN(2047))<<52), 'g', -1, 64)
	case 1:
		return strconv.FormatFloat(math.Ldexp(1, r.IntN(2000)-1000), 'e', -1, 64)
	case 2:
		return strconv.FormatInt(r.Int64N(1<<53), 10)
	case 3:
		return fmt.Sprintf("%d.%0*d", r.IntN(1000), 1+r.IntN(10), r.IntN(10))
	default:
		return []string{"0", "-0", "0.0", "-0e9", "1E2", "1e21", "1e-6", "1e-7", "123e-8", "100000000000000000000", "1e20", "5e-324", "0.10", "-1.5E+3", "9007199254740993e0"}[r.IntN(14)]
	}
}

var nodeNames = []string{"a", "b", "__proto__", "constructor", "toString", "0", "1", "10", "2", "01", "-1", "1.0", "4294967294", "4294967295", "4294967296", "length", "é", "\U0001F600", "", " "}

// corpus writes a random value the way no tidy program would.
func corpus(r *rand.Rand, depth int) string {
	space := func() string { return strings.Repeat(" ", r.IntN(3)/2) }
	kind := r.IntN(8)
	if depth == 0 {
		kind = 4 + r.IntN(4)
	}
	switch {
	case kind < 3:
		var members []string
		for range r.IntN(6) {
			members = append(members, spell(r, nodeNames[r.IntN(len(nodeNames))])+space()+":"+corpus(r, depth-1))
		}
		if r.IntN(8) == 0 {
			for i := range 50 {
				members = append(members, spell(r, "k"+strconv.Itoa(r.IntN(20+i)))+":"+survivor(r))
			}
		}
		return "{" + space() + strings.Join(members, space()+",") + "}"
	case kind == 3:
		var elements []string
		for range r.IntN(5) {
			elements = append(elements, corpus(r, depth-1))
		}
		return "[" + strings.Join(elements, ","+space()) + space() + "]"
	case kind < 6:
		text := make([]rune, r.IntN(12))
		for i := range text {
			switch r.IntN(5) {
			case 0:
				text[i] = rune(r.IntN(0x80))
			case 1:
				text[i] = 0xD800 + rune(r.IntN(0x800)) // a surrogate, often alone
			case 2:
				text[i] = rune(r.IntN(0x110000))
			case 3:
				text[i] = []rune{'\u2028', '\u2029', '<', '&', '/', '"', '\\', 0x7F, 0x80, 0xFEFF, 0xFFFF}[r.IntN(11)]
			default:
				text[i] = 'a' + rune(r.IntN(26))
			}
		}
		return spellRunes(r, text)
	case kind == 6:
		return []string{"true", "false", "null"}[r.IntN(3)]
	default:
		return survivor(r)
	}
}

func spell(r *rand.Rand, s string) string { return spellRunes(r, []rune(s)) }

// spellRunes writes a literal with needless and with upper-case escapes.
func spellRunes(r *rand.Rand, text []rune) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		format := []string{`\u%04x`, `\u%04X`}[r.IntN(2)]
		switch {
		case c >= 0x10000 && r.IntN(2) == 0:
			c -= 0x10000
			fmt.Fprintf(&b, format+format, 0xD800+c>>10, 0xDC00+c&0x3FF)
		case c < 0x20 || c == '"' || c == '\\' || 0xD800 <= c && c <= 0xDFFF || c < 0x10000 && r.IntN(6) == 0:
			fmt.Fprintf(&b, format, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func TestAppendNormalIsWhatNodeWrites(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: nothing to compare with")
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	var lines []string
	for range 5_000 {
		lines = append(lines, corpus(r, 4))
	}
	for e := -1074; e < 1024; e++ { // powers of two are where shortest digits are hardest
		lines = append(lines, strconv.FormatFloat(math.Ldexp(1, e), 'e', -1, 64))
	}
	// Node decodes bytes that are not UTF-8 before it parses.
	lines = append(lines, "\"\xff\"", "\"\xed\xa0\x80\xf0\x9f\x98\"", "\"\xc0\xaf\xe0\x80\xf4\x90\x80\x80\"", "\"\xe2\x82\"")
	file := t.TempDir() + "/corpus"
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, node, "-e", script, file).Output()
	if err != nil {
		t.Fatalf("node: %v (seed %d)", err, seed)
	}
	want := bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
	if len(want) != len(lines) {
		t.Fatalf("node wrote %d lines for %d (seed %d)", len(want), len(lines), seed)
	}
	for i, line := range lines {
		got, err := AppendNormal(nil, []byte(line))
		if err != nil || !bytes.Equal(got, want[i]) {
			t.Fatalf("%s\n got %s, %v\nnode %s (seed %d)", line, got, err, want[i], seed)
		}
		if !Normal(want[i]) {
			t.Fatalf("what node wrote is not Normal: %s (seed %d)", want[i], seed)
		}
	}
}
