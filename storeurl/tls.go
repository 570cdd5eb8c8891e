package storeurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/internal/durable"
)

// The variables of the environment that name files in PEM: the certificate that this
// machine shows to servers and its key, and the authorities that servers are believed to
// be signed by, in the place of the system's.
const (
	CertFileEnv = "AGENTRUN_TLS_CERT_FILE"
	KeyFileEnv  = "AGENTRUN_TLS_KEY_FILE"
	CAFileEnv   = "AGENTRUN_TLS_CA_FILE"
)

// maxPEM bounds such a file, in bytes.
const maxPEM = 4 << 20

// tlsConfig is how servers are spoken with over TLS; nil is the system's way.
func (o Options) tlsConfig() (*tls.Config, error) {
	certFile, keyFile, caFile := o.variable(CertFileEnv), o.variable(KeyFileEnv), o.variable(CAFileEnv)
	if o.TLS != nil || certFile == "" && keyFile == "" && caFile == "" {
		return o.TLS, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if certFile != "" || keyFile != "" {
		if certFile == "" || keyFile == "" {
			return nil, fmt.Errorf("a certificate and its key belong together: set both %s and %s", CertFileEnv, KeyFileEnv)
		}
		cert, err := readPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate that %s and %s name: %w", CertFileEnv, KeyFileEnv, err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	if caFile != "" {
		text, err := durable.ReadFile(nil, caFile, maxPEM)
		config.RootCAs = x509.NewCertPool()
		if err == nil && !config.RootCAs.AppendCertsFromPEM(text) {
			err = errors.New(caFile + " has no certificate in PEM")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the authorities that %s names: %w", CAFileEnv, err)
		}
	}
	return config, nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := durable.ReadFile(nil, certFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := durable.ReadFile(nil, keyFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
