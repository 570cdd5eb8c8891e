package redact

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// class is a set of bytes.
type class [256]bool

func newClass(chars string) *class {
	var c class
	for i := 0; i < len(chars); i++ {
		if i+2 < len(chars) && chars[i+1] == '-' {
			for b := int(chars[i]); b <= int(chars[i+2]); b++ {
				c[b] = true
			}
			i += 2
			continue
		}
		c[chars[i]] = true
	}
	return &c
}

var (
	alnum   = newClass("A-Za-z0-9")
	word    = newClass("A-Za-z0-9_")
	lower   = newClass("a-z0-9")
	hex     = newClass("0-9a-f")
	base32  = newClass("A-Z2-7")
	upper   = newClass("A-Z0-9")
	urlsafe = newClass("A-Za-z0-9_-") // the last - stands for itself
	base64c = newClass("A-Za-z0-9+/=")
)

// part is one step of a rule behind its prefix: a text, or from least to most bytes of a class.
type part struct {
	text        string
	class       *class
	least, most int
}

func text(s string) part                { return part{text: s} }
func some(c *class, least int) part     { return part{class: c, least: least, most: maxToken} }
func exactly(c *class, n int) part      { return part{class: c, least: n, most: n} }
func (p part) open() bool               { return p.class != nil && p.most == maxToken }
func rule(kind string, p ...part) shape { return shape{kind: kind, prefix: p[0].text, parts: p[1:]} }

// shape is a rule for tokens: a prefix that hardly anything else has, and what follows it. It is matched without going
// back: no part takes bytes that the next one needs.
type shape struct {
	kind   string
	prefix string
	parts  []part
}

// shapes are the tokens of providers. Prefixes and lengths are those that the providers document, or of tokens that they gave
// out; where they give tokens of several lengths, it is the shortest. They are made when they are first needed.
var shapes = sync.OnceValue(func() []shape {
	return []shape{
		rule("anthropic", text("sk-ant-"), some(urlsafe, 40)),
		rule("openrouter", text("sk-or-v1-"), exactly(hex, 64)),
		rule("openai", text("sk-proj-"), some(urlsafe, 40)),
		rule("openai", text("sk-svcacct-"), some(urlsafe, 40)),
		rule("openai", text("sk-admin-"), some(urlsafe, 40)),
		rule("openai", text("sk-"), exactly(alnum, 20), text("T3BlbkFJ"), exactly(alnum, 20)),
		rule("deepseek", text("sk-"), exactly(hex, 32)),
		rule("aws", text("AKIA"), exactly(base32, 16)),
		rule("aws", text("ASIA"), exactly(base32, 16)),
		rule("aws", text("ABIA"), exactly(base32, 16)),
		rule("aws", text("ACCA"), exactly(base32, 16)),
		rule("github", text("ghp_"), some(alnum, 36)),
		rule("github", text("gho_"), some(alnum, 36)),
		rule("github", text("ghu_"), some(alnum, 36)),
		rule("github", text("ghs_"), some(alnum, 36)),
		rule("github", text("ghr_"), some(alnum, 36)),
		rule("github", text("github_pat_"), some(word, 60)),
		rule("gitlab", text("glpat-"), some(urlsafe, 20)),
		rule("gitlab", text("glptt-"), some(urlsafe, 40)),
		rule("gitlab", text("gldt-"), some(urlsafe, 20)),
		rule("gitlab", text("glrt-"), some(urlsafe, 20)),
		rule("slack", text("xoxb-"), some(urlsafe, 24)),
		rule("slack", text("xoxp-"), some(urlsafe, 24)),
		rule("slack", text("xoxa-"), some(urlsafe, 24)),
		rule("slack", text("xoxs-"), some(urlsafe, 24)),
		rule("slack", text("xoxe."), some(urlsafe, 24)),
		rule("slack", text("xapp-1-"), some(urlsafe, 40)),
		rule("slack", text("hooks.slack.com/services/"), some(newClass("A-Za-z0-9/"), 40)),
		rule("discord", text("discord.com/api/webhooks/"), some(newClass("A-Za-z0-9/_-"), 70)),
		rule("google", text("AIza"), exactly(urlsafe, 35)),
		rule("google", text("ya29."), some(urlsafe, 40)),
		rule("google", text("GOCSPX-"), exactly(urlsafe, 28)),
		rule("stripe", text("sk_live_"), some(alnum, 20)),
		rule("stripe", text("rk_live_"), some(alnum, 20)),
		rule("stripe", text("sk_test_"), some(alnum, 20)),
		rule("stripe", text("rk_test_"), some(alnum, 20)),
		rule("stripe", text("whsec_"), some(newClass("A-Za-z0-9+/="), 32)),
		rule("npm", text("npm_"), exactly(alnum, 36)),
		rule("pypi", text("pypi-AgEIcHlwaS5vcmc"), some(urlsafe, 50)),
		rule("rubygems", text("rubygems_"), exactly(hex, 48)),
		rule("huggingface", text("hf_"), exactly(alnum, 34)),
		rule("groq", text("gsk_"), exactly(alnum, 52)),
		rule("xai", text("xai-"), exactly(alnum, 80)),
		rule("perplexity", text("pplx-"), exactly(alnum, 48)),
		rule("replicate", text("r8_"), exactly(alnum, 37)),
		rule("cerebras", text("csk-"), exactly(lower, 48)),
		rule("sendgrid", text("SG."), exactly(urlsafe, 22), text("."), exactly(urlsafe, 43)),
		rule("digitalocean", text("dop_v1_"), exactly(hex, 64)),
		rule("digitalocean", text("dor_v1_"), exactly(hex, 64)),
		rule("databricks", text("dapi"), exactly(hex, 32)),
		rule("vault", text("hvs."), some(urlsafe, 24)),
		rule("vault", text("hvb."), some(urlsafe, 100)),
		rule("terraform", text(".atlasv1."), some(newClass("A-Za-z0-9_="), 60)),
		rule("linear", text("lin_api_"), exactly(alnum, 40)),
		rule("notion", text("ntn_"), some(alnum, 43)),
		rule("docker", text("dckr_pat_"), some(urlsafe, 27)),
		rule("docker", text("dckr_oat_"), some(urlsafe, 27)),
		rule("shopify", text("shpat_"), exactly(newClass("0-9a-fA-F"), 32)),
		rule("shopify", text("shpss_"), exactly(newClass("0-9a-fA-F"), 32)),
		rule("atlassian", text("ATATT3"), some(newClass("A-Za-z0-9_=-"), 180)),
		rule("azure", text("AccountKey="), exactly(newClass("A-Za-z0-9+/"), 86), text("==")),
		rule("age", text("AGE-SECRET-KEY-1"), exactly(newClass("A-Z0-9"), 58)),
		rule("grafana", text("glsa_"), exactly(alnum, 32), text("_"), exactly(newClass("0-9A-Fa-f"), 8)),
		rule("newrelic", text("NRAK-"), exactly(upper, 27)),
		rule("sentry", text("sntrys_"), some(newClass("A-Za-z0-9+/=_"), 60)),
		rule("postman", text("PMAK-"), exactly(hex, 24), text("-"), exactly(hex, 34)),
		rule("fly", text("FlyV1 fm"), some(newClass("A-Za-z0-9+/=_"), 60)),
		rule("telegram", text("api.telegram.org/bot"), some(newClass("A-Za-z0-9_:-"), 40)),
		rule(KindJWT, text("eyJ"), some(urlsafe, 12), text(".eyJ"), some(urlsafe, 12), text("."), some(urlsafe, 20)),
	}
})

// Kinds are the kinds of secrets there are rules for, sorted.
func Kinds() []string {
	kinds := []string{KindURL, KindPrivateKey, KindVariable}
	for _, s := range shapes() {
		kinds = append(kinds, s.kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// genuine reports whether what follows a prefix is more than a placeholder: it has at least six different bytes, and
// does not say that it is an example.
func genuine(b []byte) bool {
	if len(b) > 256 {
		return true
	}
	var seen class
	n := 0
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n >= 6 && !bytes.HasSuffix(b, []byte("EXAMPLE")) && !bytes.Contains(b, []byte("xxxxxxxx")) && !bytes.Contains(b, []byte("XXXXXXXX"))
}

// password reports whether what stands in the place of a URL's password is one.
func password(b []byte) bool {
	if len(b) < MinSecret || b[0] == '$' || b[0] == '%' && !isHex(b[1:]) {
		return false
	}
	if bytes.Count(b, b[:1]) == len(b) || bytes.Contains(b, []byte("***")) || bytes.Contains(b, []byte("xxxx")) || bytes.Contains(b, []byte("...")) {
		return false
	}
	s := strings.ToLower(string(b))
	for _, word := range []string{"password", "passwort", "passwd", "passphrase", "changeme", "example", "secret", "your_", "your-", "redacted"} {
		if s == word || strings.Contains(s, word) && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_-") == "" {
			return false
		}
	}
	return true
}

// isHex reports whether b begins with two hexadecimal digits, as behind % in a URL.
func isHex(b []byte) bool {
	digits := "0123456789abcdefABCDEF"
	return len(b) >= 2 && strings.IndexByte(digits, b[0]) >= 0 && strings.IndexByte(digits, b[1]) >= 0
}
