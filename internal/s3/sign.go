package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The names and forms of AWS Signature Version 4, as "Create a signed AWS API request" of the IAM User Guide and
// "Authenticating Requests" of the S3 API Reference have them.
const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeFormat = "20060102T150405Z"
	service    = "s3"
	terminator = "aws4_request"
)

// sign adds what proves who asks: the host, the headers that are there but for User-Agent, the query and the body, whose SHA-256
// is sum, are bound to the key and the time.
func sign(r *http.Request, who Credentials, region, sum string, now time.Time) {
	now = now.UTC()
	r.Header.Set("X-Amz-Date", now.Format(timeFormat))
	r.Header.Set("X-Amz-Content-Sha256", sum)
	if who.SessionToken != "" {
		r.Header.Set("X-Amz-Security-Token", who.SessionToken)
	}
	canonical, signed := canonicalRequest(r, sum)
	scope := strings.Join([]string{now.Format("20060102"), region, service, terminator}, "/")
	hash := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{algorithm, now.Format(timeFormat), scope, hex.EncodeToString(hash[:])}, "\n")
	key := []byte("AWS4" + who.SecretAccessKey)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", algorithm+" Credential="+who.AccessKeyID+"/"+scope+
		", SignedHeaders="+signed+", Signature="+hex.EncodeToString(mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonicalRequest is the request as it is signed, and the names of the headers in it.
func canonicalRequest(r *http.Request, sum string) (text, signed string) {
	values := map[string]string{"host": r.Host}
	for name, list := range r.Header {
		if name == "User-Agent" || name == "Authorization" { // which proxies change; which is the result
			continue
		}
		for i, v := range list {
			list[i] = strings.Join(strings.Fields(v), " ")
		}
		values[strings.ToLower(name)] = strings.Join(list, ",")
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, line := range []string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery} {
		b.WriteString(line + "\n")
	}
	for _, name := range names {
		b.WriteString(name + ":" + values[name] + "\n")
	}
	signed = strings.Join(names, ";")
	b.WriteString("\n" + signed + "\n" + sum)
	return b.String(), signed
}

// canonicalQuery is a query as it is signed and sent: sorted by name, every value named.
func canonicalQuery(q url.Values) string {
	pairs := make([]string, 0, len(q))
	for name, values := range q {
		for _, v := range values {
			pairs = append(pairs, escape(name, false)+"="+escape(v, false))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// escape escapes all bytes but those that RFC 3986 reserves for nothing, and slashes where they stay.
func escape(s string, slashes bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0, c == '/' && slashes:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
