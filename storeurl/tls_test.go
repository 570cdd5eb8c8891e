package storeurl_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/internal/s3test"
	"github.com/agentrun/agentrun/kv/kvhttp"
	"github.com/agentrun/agentrun/storeurl"
)

// identity is a certificate, and the files that have it.
type identity struct {
	tls.Certificate
	certFile, keyFile string
}

// certify makes a certificate that by signs, or one that signs itself and others.
func certify(t *testing.T, by *identity) *identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "one"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	id := &identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for file, block := range map[string]*pem.Block{id.certFile: {Type: "CERTIFICATE", Bytes: der}, id.keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func (i *identity) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.Leaf)
	return pool
}

// served is a server that asks for certificates of ca.
func served(t *testing.T, ca *identity, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = nil
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certify(t, ca).Certificate}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func TestServersThatAskForCertificatesAreReachedWithThoseOfTheEnvironment(t *testing.T) {
	ca, other := certify(t, nil), certify(t, nil)
	// A peer, a server, and a bucket behind a proxy that has the certificates.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- kvhttp.Serve(ctx, ln, memory.New(blobstore.Verified), kvhttp.ServeOptions{TLS: &tls.Config{
			Certificates: []tls.Certificate{certify(t, ca).Certificate}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	urls := map[string]string{
		"a peer":   "kv:https://" + ln.Addr().String(),
		"a server": served(t, ca, httpstore.NewHandler(memory.New(blobstore.Verified), httpstore.HandlerOptions{})),
	}
	t.Run("with a bucket", func(t *testing.T) {
		service := s3test.Start(t)
		to, err := url.Parse(service.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		proxy := served(t, ca, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // which is signed
		}})
		through(t, ca, other, map[string]string{"a bucket": "s3://" + service.Bucket + "/p?endpoint=" + proxy})
	})
	through(t, ca, other, urls)
}

func through(t *testing.T, ca, other *identity, urls map[string]string) {
	client, stranger := certify(t, ca), certify(t, other)
	blob := bytes.Repeat([]byte("x"), 6<<20) // more than a part of a bucket
	ref := blobref.Of(blob)
	for name, at := range urls {
		for _, tt := range []struct {
			name          string
			cert, key, ca string
			works         bool
		}{
			{"all that is wanted", client.certFile, client.keyFile, ca.certFile, true},
			{"no certificate", "", "", ca.certFile, false},
			{"a certificate of another authority", stranger.certFile, stranger.keyFile, ca.certFile, false},
			{"a server of another authority", client.certFile, client.keyFile, other.certFile, false},
			{"a server that the system does not know", client.certFile, client.keyFile, "", false},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				s, err := storeurl.Open(t.Context(), at, storeurl.Options{Lookup: func(name string) (string, bool) {
					file, ok := map[string]string{storeurl.CertFileEnv: tt.cert, storeurl.KeyFileEnv: tt.key, storeurl.CAFileEnv: tt.ca}[name]
					if !ok {
						return os.LookupEnv(name)
					}
					return file, true
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				_, absent := s.Store.Get(t.Context(), blobref.Of(nil))
				if errors.Is(absent, blobstore.ErrNotFound) != tt.works {
					t.Fatalf("Get = %v, want that it works: %v", absent, tt.works)
				}
				if !tt.works {
					return
				}
				if err := s.Store.Set(t.Context(), ref, blob); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Store.Get(t.Context(), ref); err != nil || !bytes.Equal(got, blob) {
					t.Errorf("Get = %d bytes, %v", len(got), err)
				}
				if _, _, err := blobstore.PutStream(t.Context(), s.Store, io.MultiReader(bytes.NewReader(blob), strings.NewReader(name))); err != nil && !errors.Is(err, blobstore.ErrUnsupported) {
					t.Errorf("PutStream: %v", err)
				}
			})
		}
	}
}

func TestCertificatesThatCannotBeReadAreNamed(t *testing.T) {
	id := certify(t, nil)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, variables := range map[string]map[string]string{
		"a certificate without its key":         {storeurl.CertFileEnv: id.certFile},
		"a key without its certificate":         {storeurl.KeyFileEnv: id.keyFile},
		"a key of another certificate":          {storeurl.CertFileEnv: id.certFile, storeurl.KeyFileEnv: certify(t, nil).keyFile},
		"a file that is not there":              {storeurl.CAFileEnv: empty + "x"},
		"authorities in a file that is empty":   {storeurl.CAFileEnv: empty},
		"a certificate in a file that is empty": {storeurl.CertFileEnv: empty, storeurl.KeyFileEnv: id.keyFile},
	} {
		o := storeurl.Options{Lookup: func(name string) (string, bool) { return variables[name], variables[name] != "" }}
		if s, err := storeurl.Open(t.Context(), "https://127.0.0.1:1", o); err == nil {
			s.Close()
			t.Errorf("%s: it is opened", name)
		} else if !strings.Contains(err.Error(), "AGENTRUN_TLS_") {
			t.Errorf("%s: %v, want the variable", name, err)
		}
		// A store on this machine needs none.
		if s, err := storeurl.Open(t.Context(), "mem:", o); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			s.Close()
		}
	}
}
