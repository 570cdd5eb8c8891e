package kvhttp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a authority) sign(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "peer"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	mutual := &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	oneSided := &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}}
	tests := []struct {
		name   string
		server kvhttp.ServeOptions
		client kvhttp.DialOptions
		works  bool
	}{
		{"client certificates", kvhttp.ServeOptions{TLS: mutual}, kvhttp.DialOptions{TLS: &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{ca.sign(t)}}}, true},
		{"no client certificate", kvhttp.ServeOptions{TLS: mutual}, kvhttp.DialOptions{TLS: &tls.Config{RootCAs: ca.pool()}}, false},
		{"a client certificate of another authority", kvhttp.ServeOptions{TLS: mutual}, kvhttp.DialOptions{TLS: &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{other.sign(t)}}}, false},
		{"a token", kvhttp.ServeOptions{TLS: oneSided, Token: "t"}, kvhttp.DialOptions{TLS: &tls.Config{RootCAs: ca.pool()}, Token: "t"}, true},
		{"a wrong token", kvhttp.ServeOptions{TLS: oneSided, Token: "t"}, kvhttp.DialOptions{TLS: &tls.Config{RootCAs: ca.pool()}, Token: "u"}, false},
		{"a server of another authority", kvhttp.ServeOptions{TLS: oneSided}, kvhttp.DialOptions{TLS: &tls.Config{RootCAs: other.pool()}}, false},
		{"a server of an authority that the system does not know", kvhttp.ServeOptions{TLS: oneSided}, kvhttp.DialOptions{}, false},
	}
	for _, tt := range tests {
		for _, protocol := range protocols {
			t.Run(tt.name+", "+protocol.String(), func(t *testing.T) {
				tt.client.Protocol = protocol
				tt.client.Remote.Timeout = 5 * time.Second
				tt.client.Remote.Attempts = 1
				address := serve(t, memory.New(blobstore.Verified), tt.server)
				r, err := kvhttp.Dial(t.Context(), address, tt.client)
				if err == nil {
					t.Cleanup(func() { r.Close() })
					_, err = r.Get(t.Context(), blobref.Of(nil))
				}
				if errors.Is(err, blobstore.ErrNotFound) != tt.works {
					t.Errorf("Get = %v, want that it works: %v", err, tt.works)
				}
			})
		}
	}
}

func TestBeyondThisMachineAServerAsksWhoIsThere(t *testing.T) {
	ca := newAuthority(t)
	for name, opts := range map[string]kvhttp.ServeOptions{
		"neither":                         {TLS: &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}}},
		"certificates only if given":      {TLS: &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}, ClientCAs: ca.pool(), ClientAuth: tls.VerifyClientCertIfGiven}},
		"certificates of any authority":   {TLS: &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}, ClientAuth: tls.RequireAndVerifyClientCert}},
		"certificates that nobody checks": {TLS: &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAnyClientCert}},
	} {
		ln, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := kvhttp.Serve(t.Context(), ln, memory.New(blobstore.Verified), opts); !errors.Is(err, kvhttp.ErrPlaintext) {
			t.Errorf("%s: Serve = %v, want ErrPlaintext", name, err)
		}
	}
}

func TestTokensComeFromAFileOrTheEnvironment(t *testing.T) {
	for text, want := range map[string]string{
		"secret":                   "secret",
		"secret\n":                 "secret",
		"secret\r\n":               "secret",
		"":                         "",
		"\n":                       "",
		"sec ret":                  "",
		"sec\nret":                 "",
		"secrät":                   "",
		strings.Repeat("s", 9_000): "",
	} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := kvhttp.TokenFromFile(path)
		if got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "sec") {
			t.Errorf("a file with %.20q: %q, %v; want %q", text, got, err, want)
		}
	}
	t.Setenv(kvhttp.TokenEnv, "")
	if got, err := kvhttp.TokenFromEnv(); got != "" || err != nil {
		t.Errorf("without the variable: %q, %v", got, err)
	}
	t.Setenv(kvhttp.TokenEnv, "secret")
	if got, err := kvhttp.TokenFromEnv(); got != "secret" || err != nil {
		t.Errorf("from the environment: %q, %v", got, err)
	}
	t.Setenv(kvhttp.TokenEnv, "sec\x01ret")
	if got, err := kvhttp.TokenFromEnv(); got != "" || err == nil || strings.Contains(err.Error(), "sec") {
		t.Errorf("from the environment: %q, %v", got, err)
	}
	if _, err := kvhttp.Dial(t.Context(), "http://user:sec%zz@127.0.0.1:1", kvhttp.DialOptions{}); err == nil || strings.Contains(err.Error(), "sec") {
		t.Errorf("dialling what is no URL: %v", err)
	}
	if _, err := kvhttp.Dial(t.Context(), "http://127.0.0.1:1", kvhttp.DialOptions{Token: "a b"}); err == nil || errors.Is(err, kv.ErrRefused) {
		t.Errorf("dialling with a token that cannot be sent: %v", err)
	}
}

func TestBeyondThisMachineATokenOrACertificateIsEnough(t *testing.T) {
	ca := newAuthority(t)
	trusting := &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{ca.sign(t)}}
	for name, opts := range map[string]kvhttp.ServeOptions{
		"a token":      {TLS: &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}}, Token: "t"},
		"certificates": {TLS: &tls.Config{Certificates: []tls.Certificate{ca.sign(t)}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert}},
	} {
		ln, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- kvhttp.Serve(ctx, ln, memory.New(blobstore.Verified), opts) }()
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		r, err := kvhttp.Dial(t.Context(), "https://127.0.0.1:"+port, kvhttp.DialOptions{TLS: trusting, Token: opts.Token})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkStore(t, r)
		r.Close()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("%s: Serve = %v", name, err)
		}
	}
}
