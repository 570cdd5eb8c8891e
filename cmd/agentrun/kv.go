package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

func newKVCommand(env *environment) *cobra.Command {
	b := &blobsCommand{environment: env}
	get, set := b.newGet(), b.newPut()
	get.Example = "  agentrun kv get <hex> --store kv:http://127.0.0.1:4711 >picture.png"
	set.Use, set.Aliases = "set [FILE|-]", []string{"put"}
	set.Example = "  agentrun kv set picture.png --store kv:http://127.0.0.1:4711"
	for _, cmd := range []*cobra.Command{get, set} {
		cmd.Long = "It is agentrun blobs " + map[bool]string{true: "get", false: "put"}[cmd == get] + " by another name.\n\n" + cmd.Long
	}
	cmd := group(&cobra.Command{
		Use:   "kv",
		Short: "Serve blobs to other processes, and get and set theirs",
		Long: `kv speaks the key-value stream of agent.v1, in which one side asks for blobs and
stores them, and the other one has them: over Connect and gRPC, both on HTTP/2,
or over the standard input and output. A blob has ` + quantity.Size(kv.DefaultMaxBlob) + ` at most on it.`,
	}, newKVServeCommand(env), get, set)
	cmd.PersistentFlags().StringVar(&b.url, "store", "", "the store at a `URL`, such as kv:http://HOST:PORT; see agentrun help blobs")
	return cmd
}

// kvServe is the command kv serve.
type kvServe struct {
	*environment
	listen                    string
	stdio, opaque             bool
	tokenFile                 string
	certFile, keyFile, caFile string
}

func newKVServeCommand(env *environment) *cobra.Command {
	x := kvServe{environment: env}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a store to other processes",
		Long: `serve has the blobs of the home, or of the store that --store names, for whoever
connects, until it is interrupted. Its first line of output is the address, such
as 127.0.0.1:4711; the store URL is kv:http:// before that.

Without TLS it listens on this machine only. Beyond it --cert and --cert-key are
needed, and --token-file or --client-ca: a token that clients bring, in the
variable AGENTRUN_KV_TOKEN for example, or who signs their certificates.

With --opaque it serves ciphertext: what clients store under encrypted= of their
--store, and nobody here can read or check. The store has to be named, and to be
empty, or one of encrypted blobs.

With --stdio it serves the process at the other end of its standard input and
output, and prints no address.`,
		Example: `  agentrun kv serve --listen 127.0.0.1:0
  agentrun kv serve --listen :4711 --cert c.pem --cert-key k.pem --token-file t
  agentrun kv serve --opaque --store dir:sealed`,
		Args: positional(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := cmd.Flags().GetString("store")
			if err != nil {
				return err
			}
			return x.interruptible(cmd.Context(), func(ctx context.Context) error {
				return x.run(ctx, storeFlag{url: store, given: cmd.Flags().Changed("store"), makes: true, opaque: x.opaque})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&x.listen, "listen", "127.0.0.1:0", "the `ADDRESS` to listen on, port 0 for any that is free")
	f.BoolVar(&x.stdio, "stdio", false, "serve the standard input and output")
	f.BoolVar(&x.opaque, "opaque", false, "serve a store of what clients encrypt")
	f.StringVar(&x.tokenFile, "token-file", "", "ask for the token that is in `FILE`, which its owner alone may read")
	f.StringVar(&x.certFile, "cert", "", "the certificate of this server, a PEM `FILE`")
	f.StringVar(&x.keyFile, "cert-key", "", "the key of the certificate, a PEM `FILE`")
	f.StringVar(&x.caFile, "client-ca", "", "ask clients for a certificate signed by one in a PEM `FILE`")
	return cmd
}

func (x *kvServe) run(ctx context.Context, flag storeFlag) (err error) {
	if x.opaque && !flag.given {
		return usagef("the home has verified blobs: name a store for opaque ones with --store")
	}
	o, err := x.options()
	if err != nil {
		return err
	}
	m, err := x.manager()
	if err != nil {
		return err
	}
	store, done, err := flag.open(ctx, x.environment, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Flush(context.WithoutCancel(ctx)), done()) }()
	if x.stdio {
		c := kv.NewControlled(store, o.Controlled)
		return c.Serve(ctx, kv.NewStream(x.stdin, x.stdout, c.MaxMessage(), x.stdin.Close))
	}
	ln, err := net.Listen("tcp", x.listen)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", x.listen, err)
	}
	return kvhttp.Serve(ctx, &announcing{Listener: ln, announce: x.announce}, store, o)
}

// announcing says where it listens when it is about to accept: a server that refuses to serve has no address.
type announcing struct {
	net.Listener
	announce func(net.Addr) error
	once     sync.Once
	err      error
}

// Accept waits for a connection.
func (a *announcing) Accept() (net.Conn, error) {
	if a.once.Do(func() { a.err = a.announce(a.Addr()) }); a.err != nil {
		return nil, a.err
	}
	return a.Listener.Accept()
}

// announce prints where it listens.
func (x *kvServe) announce(at net.Addr) error {
	if x.json {
		return printJSON(x.stdout, struct {
			Address string `json:"address"`
		}{at.String()})
	}
	_, err := fmt.Fprintln(x.stdout, at)
	return err
}

// options are who is served.
func (x *kvServe) options() (o kvhttp.ServeOptions, err error) {
	if x.tokenFile != "" {
		if o.Token, err = kvhttp.TokenFromFile(x.tokenFile); err != nil {
			return o, err
		}
	}
	if x.certFile == "" && x.keyFile == "" {
		if x.caFile != "" {
			return o, usagef("clients have certificates only over TLS: give --cert and --cert-key, too")
		}
		return o, nil
	}
	if x.certFile == "" || x.keyFile == "" {
		return o, usagef("a certificate and its key belong together: give both --cert and --cert-key")
	}
	cert, err := tls.LoadX509KeyPair(x.certFile, x.keyFile)
	if err != nil {
		return o, fmt.Errorf("reading the certificate: %w", err)
	}
	o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if x.caFile == "" {
		return o, nil
	}
	text, err := os.ReadFile(x.caFile)
	if err != nil {
		return o, fmt.Errorf("reading who signs certificates of clients: %w", err)
	}
	o.TLS.ClientCAs = x509.NewCertPool()
	if !o.TLS.ClientCAs.AppendCertsFromPEM(text) {
		return o, fmt.Errorf("reading who signs certificates of clients: %s has no certificate in PEM", x.caFile)
	}
	o.TLS.ClientAuth = tls.RequireAndVerifyClientCert
	return o, nil
}
