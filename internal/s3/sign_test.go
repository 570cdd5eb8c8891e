package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// example are the keys of the examples of the S3 API Reference, "Authenticating Requests: Using the Authorization Header".
var example = Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}

func TestSignaturesAreThoseOfTheExamplesOfTheReference(t *testing.T) {
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		method, path, query, body, signed, want string
		header                                  http.Header
	}{
		"a part of an object": {
			"GET", "/test.txt", "", "", "host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
			http.Header{"Range": {"bytes=0-9"}},
		},
		"an object that is put": {
			"PUT", "/test$file.text", "", "Welcome to Amazon S3.", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
			http.Header{"Date": {"Fri, 24 May 2013 00:00:00 GMT"}, "X-Amz-Storage-Class": {"REDUCED_REDUNDANCY"}},
		},
		"a word of the query without a value": {
			"GET", "/", canonicalQuery(url.Values{"lifecycle": {""}}), "", "host;x-amz-content-sha256;x-amz-date",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
			http.Header{},
		},
		"a list": {
			"GET", "/", canonicalQuery(url.Values{"prefix": {"J"}, "max-keys": {"2"}}), "", "host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
			http.Header{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			const host = "examplebucket.s3.amazonaws.com"
			tt.header.Set("User-Agent", "is not signed")
			r := &http.Request{
				Method: tt.method, Host: host, Header: tt.header,
				URL: &url.URL{Scheme: "https", Host: host, Path: tt.path, RawPath: escape(tt.path, true), RawQuery: tt.query},
			}
			sum := sha256.Sum256([]byte(tt.body))
			sign(r, example, "us-east-1", hex.EncodeToString(sum[:]), now)
			want := "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=" + tt.signed + ", Signature=" + tt.want
			if got := r.Header.Get("Authorization"); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}

func TestWhatIsSignedIsWhatIsSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[ -\[\]-~]{1,40}`).Draw(t, "key")
		value := rapid.String().Draw(t, "value")
		c := Client{Endpoint: &url.URL{Scheme: "https", Host: "example.com:9000"}, Region: "r"}
		req, err := c.build(context.Background(), request{method: "GET", bucket: "bucket", key: key, query: url.Values{"prefix": {value}}})
		if err != nil {
			t.Fatal(err)
		}
		var sent strings.Builder
		if err := req.Write(&sent); err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(sent.String(), "\r\n")
		text, _ := canonicalRequest(req, "")
		lines := strings.SplitN(text, "\n", 4)
		if want := fmt.Sprintf("GET %s?%s HTTP/1.1", lines[1], lines[2]); line != want {
			t.Errorf("%q is sent, and %q signed", line, want)
		}
		u, err := url.ParseRequestURI(strings.Fields(line)[1])
		if err != nil || u.Path != "/bucket/"+key || u.Query().Get("prefix") != value {
			t.Errorf("%q is %q, %q, %v", line, u.Path, u.Query(), err)
		}
	})
}

func TestABucketIsAHostAtAmazonAndAPathElsewhere(t *testing.T) {
	for _, tt := range []struct{ endpoint, region, bucket, want string }{
		{"http://127.0.0.1:9000", "us-east-1", "bucket", "127.0.0.1:9000/bucket/a/b"},
		{"https://example.com", "r", "bucket", "example.com/bucket/a/b"},
		{"https://s3.amazonaws.com", "eu-west-1", "bucket", "bucket.s3.eu-west-1.amazonaws.com/a/b"},
		{"https://s3.amazonaws.com:443", "eu-west-1", "bucket", "bucket.s3.eu-west-1.amazonaws.com:443/a/b"},
		{"https://s3.eu-west-1.amazonaws.com", "us-east-1", "bucket", "bucket.s3.eu-west-1.amazonaws.com/a/b"},
		{"https://s3.amazonaws.com", "eu-west-1", "my.bucket", "s3.eu-west-1.amazonaws.com/my.bucket/a/b"},
		{"https://oss-cn-hangzhou.aliyuncs.com", "", "bucket", "bucket.oss-cn-hangzhou.aliyuncs.com/a/b"},
	} {
		u, err := url.Parse(tt.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		c := Client{Endpoint: u, Region: tt.region}
		if host, path := c.place(tt.bucket, "a/b"); host+path != tt.want {
			t.Errorf("%s at %s is %s%s, want %s", tt.bucket, tt.endpoint, host, path, tt.want)
		}
	}
}

func TestNobodySignsNothing(t *testing.T) {
	c := Client{Endpoint: &url.URL{Scheme: "https", Host: "example.com"}, Credentials: func(context.Context) (Credentials, error) { return Credentials{}, nil }}
	req, err := c.build(t.Context(), request{method: "GET", bucket: "bucket", key: "a"})
	if err != nil || req.Header.Get("Authorization") != "" {
		t.Errorf("%v, %v", req.Header, err)
	}
	c.Credentials = func(context.Context) (Credentials, error) {
		return Credentials{AccessKeyID: "id", SecretAccessKey: "hidden", SessionToken: "lent"}, nil
	}
	req, err = c.build(t.Context(), request{method: "GET", bucket: "bucket", key: "a"})
	if err != nil || req.Header.Get("X-Amz-Security-Token") != "lent" || !strings.Contains(req.Header.Get("Authorization"), "x-amz-security-token") {
		t.Errorf("%v, %v", req.Header, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", example, example, example); strings.Contains(text, example.SecretAccessKey) {
		t.Errorf("%s tells the secret", text)
	}
}
