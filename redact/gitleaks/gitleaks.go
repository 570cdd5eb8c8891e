// Package gitleaks finds secrets by the rules of gitleaks (github.com/gitleaks/gitleaks, version 8.30.1, MIT), for places where
// nobody waits: about 220 regular expressions, some of which guess by entropy. They find more than package redact does,
// and more that is no secret; BENCHMARKS.md has the rates.
//
// rules.json is the configuration that comes with gitleaks, as JSON, without the rules and exceptions that are about the names of
// files. It is read when it is first needed, and each expression is compiled when one of its keywords is met: the program starts as fast
// without a use of this package as if it were not there.
//
// The functions may be called concurrently.
package gitleaks

import (
	"bytes"
	_ "embed" // rules.json
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed rules.json
var rulesJSON []byte

// Finding is what a rule found.
type Finding struct {
	Rule     string // such as "stripe-access-token"
	From, To int    // of the secret, in the text
}

// allow is what is no secret after all.
type allow struct {
	Regexes   []string `json:"regexes"`
	Stopwords []string `json:"stopwords"`
	Target    string   `json:"target"` // "", match, line: what the expressions are for

	compiled func() []*regexp.Regexp
}

// rule is one of rules.json.
type rule struct {
	ID       string   `json:"id"`
	Regex    string   `json:"regex"`
	Keywords []string `json:"keywords"`
	Group    int      `json:"group"`
	Entropy  float64  `json:"entropy"`
	Allow    []allow  `json:"allow"`

	compiled func() *regexp.Regexp
}

// rules are all of them.
type rules struct {
	Allow allow   `json:"allow"`
	Rules []*rule `json:"rules"`

	grams map[uint32][]keyword // keywords of three bytes and more, by the first three
	bits  [1 << 11]uint32      // a bit for the hash of each
	short []keyword
}

type keyword struct {
	text string
	rule int
}

// generic is the rule for whatever stands behind a word such as key or token.
const generic = "generic-api-key"

// all reads the rules.
var all = sync.OnceValue(func() *rules {
	r := &rules{grams: map[uint32][]keyword{}}
	if err := json.Unmarshal(rulesJSON, r); err != nil {
		panic("gitleaks: rules.json: " + err.Error()) // it is part of the program
	}
	r.Allow.prepare()
	for i, one := range r.Rules {
		one.compiled = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(one.Regex) })
		for k := range one.Allow {
			one.Allow[k].prepare()
		}
		for _, text := range one.Keywords {
			if k := (keyword{text, i}); len(text) < 3 {
				r.short = append(r.short, k)
			} else {
				g := gram(text[0], text[1], text[2])
				r.grams[g] = append(r.grams[g], k)
				r.bits[hash(g)>>5] |= 1 << (hash(g) & 31)
			}
		}
	}
	return r
})

func gram(a, b, c byte) uint32 { return uint32(a) | uint32(b)<<8 | uint32(c)<<16 }

func hash(g uint32) uint32 { return g * 0x9e3779b1 >> 16 }

func (a *allow) prepare() {
	a.compiled = sync.OnceValue(func() []*regexp.Regexp {
		var list []*regexp.Regexp
		for _, text := range a.Regexes {
			list = append(list, regexp.MustCompile(text))
		}
		return list
	})
}

// Find returns what looks like secrets in a text, in the order of the text. None overlap.
func Find(text []byte) []Finding {
	r := all()
	var found []Finding
	for _, i := range r.candidates(text) {
		found = r.Rules[i].find(found, text, &r.Allow)
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		switch {
		case a.From != b.From:
			return a.From - b.From
		case (a.Rule == generic) != (b.Rule == generic): // a rule that knows what it is comes first
			if a.Rule == generic {
				return 1
			}
			return -1
		}
		return b.To - a.To
	})
	end := 0
	return slices.DeleteFunc(found, func(f Finding) bool {
		if f.From < end {
			return true
		}
		end = f.To
		return false
	})
}

// candidates are the rules of which a keyword is in text, in order.
func (r *rules) candidates(text []byte) []int {
	low := bytes.ToLower(text)
	met := make([]bool, len(r.Rules))
	for i := 0; i+3 <= len(low); i++ {
		if h := hash(gram(low[i], low[i+1], low[i+2])); r.bits[h>>5]&(1<<(h&31)) == 0 {
			continue
		}
		for _, k := range r.grams[gram(low[i], low[i+1], low[i+2])] {
			if !met[k.rule] && len(low)-i >= len(k.text) && string(low[i:i+len(k.text)]) == k.text {
				met[k.rule] = true
			}
		}
	}
	for _, k := range r.short {
		met[k.rule] = met[k.rule] || bytes.Contains(low, []byte(k.text))
	}
	var list []int
	for i, in := range met {
		if in {
			list = append(list, i)
		}
	}
	return list
}

func (r *rule) find(found []Finding, text []byte, global *allow) []Finding {
	for _, m := range r.compiled().FindAllSubmatchIndex(text, -1) {
		from, to := r.secret(m)
		secret := text[from:to]
		if len(secret) == 0 || r.Entropy > 0 && entropy(secret) <= r.Entropy {
			continue
		}
		if global.allows(text, m, secret) || slices.ContainsFunc(r.Allow, func(a allow) bool { return a.allows(text, m, secret) }) {
			continue
		}
		found = append(found, Finding{r.ID, from, to})
	}
	return found
}

// secret is the group of a match that is the secret: the one that the rule names, else the first that is not empty, else all.
func (r *rule) secret(m []int) (from, to int) {
	if g := 2 * r.Group; r.Group > 0 && g+1 < len(m) && m[g] >= 0 {
		return m[g], m[g+1]
	}
	for g := 2; g+1 < len(m); g += 2 {
		if m[g] >= 0 && m[g+1] > m[g] {
			return m[g], m[g+1]
		}
	}
	return m[0], m[1]
}

func (a *allow) allows(text []byte, m []int, secret []byte) bool {
	target := secret
	switch a.Target {
	case "match":
		target = text[m[0]:m[1]]
	case "line":
		from := bytes.LastIndexByte(text[:m[0]], '\n') + 1
		to := m[1]
		if n := bytes.IndexByte(text[to:], '\n'); n >= 0 {
			to += n
		} else {
			to = len(text)
		}
		target = text[from:to]
	}
	for _, e := range a.compiled() {
		if e.Match(target) {
			return true
		}
	}
	low := strings.ToLower(string(secret))
	return slices.ContainsFunc(a.Stopwords, func(w string) bool { return strings.Contains(low, strings.ToLower(w)) })
}

// entropy is Shannon's, in bits a byte.
func entropy(b []byte) float64 {
	var counts [256]int
	for _, c := range b {
		counts[c]++
	}
	var h float64
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(b))
			h -= p * math.Log2(p)
		}
	}
	return h
}
