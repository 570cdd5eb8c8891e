package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/storeurl"
)

// storeHelp says what --store takes.
const storeHelp = `--store names a store, else it is that of the home:

  dir:PATH               that directory itself: PATH/<hex>, of any program
  diskkv:FILE            a database with the table cursorDiskKV
  kv:http://HOST:PORT    a peer, as agentrun kv serve; or kv:https://
  http://HOST/PATH       a server with PATH/blobs/<hex>; or https://
  s3://BUCKET/PREFIX?endpoint=URL&region=NAME
  mem:                   memory

Behind ? come layers, between &, in any order; they stand in this one:

  cached=64MiB                      kept in memory
  encrypted=passphrase-file:FILE    under the passphrases in it, newest first
  form=seed                         written as agent.v1 clients write
  remote=URL                        sent there too, from a queue on disk: what
                                    is stored from then on, not what is there:
                                    blobs sync --all sends that
  retry=on                          a remote is asked again

Characters such as ? and & in a path, and in the URL of a remote, are written
%3F and %26. Without TLS only this machine is talked to. Secrets are never in a
URL: AGENTRUN_STORE_TOKEN, or the file AGENTRUN_STORE_TOKEN_FILE, is sent to
servers, AGENTRUN_KV_TOKEN to peers; S3 takes what AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY or ~/.aws/credentials say. AGENTRUN_TLS_CERT_FILE and
AGENTRUN_TLS_KEY_FILE name the certificate to show servers, AGENTRUN_TLS_CA_FILE
the authorities to believe in the place of the system's, all in PEM.`

// blobsCommand is the verb blobs with what all of its commands share.
type blobsCommand struct {
	*environment
	storeFlag
}

func newBlobsCommand(env *environment) *cobra.Command {
	b := &blobsCommand{environment: env}
	cmd := group(&cobra.Command{
		Use:   "blobs",
		Short: "Store and fetch blobs, and look after a store",
		Long: `blobs works with a store of blobs: bytes under the SHA-256 that names them.

` + storeHelp,
		Example: `  agentrun blobs put picture.png
  agentrun blobs get blob:sha256:<hex> >picture.png
  agentrun blobs ls --store 'dir:blobs?encrypted=passphrase-file:key'`,
	}, b.newPut(), b.newGet(), b.newList(), b.newVerify(), b.newStats(), b.newSync(), b.newRotate())
	cmd.PersistentFlags().StringVar(&b.url, "store", "", "the store at a `URL`, such as dir:PATH; see agentrun help blobs")
	return cmd
}

func (b *blobsCommand) newPut() *cobra.Command {
	return &cobra.Command{
		Use:   "put [FILE|-]",
		Short: "Store a file, or the standard input, and print its reference",
		Long: `put stores a file, without one the standard input, and prints its reference. A
blob of the home that no session names is removed by gc, an hour later at the
earliest.

Of a store with a remote it returns when the blob has arrived there too, or
after five seconds: it is here then, and the next command on the store sends it;
blobs sync waits for that.

With --json it prints an object: ref, bytes.`,
		Example: `  agentrun blobs put picture.png
  date | agentrun blobs put --store dir:/tmp/blobs -`,
		Args: positional(0, 1, "a file, or - for the standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "-"
			if len(args) > 0 {
				name = args[0]
			}
			b.makes = true
			return b.with(cmd, func(ctx context.Context, s *openStore) error { return b.put(ctx, s, name) })
		},
	}
}

func (b *blobsCommand) newGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get REF",
		Short: "Write the bytes of a blob to the standard output",
		Long: `get writes the bytes of a blob, all of which have been verified before the
first is written. REF is blob:sha256:<hex>, blob://sha256/<hex> or <hex>.`,
		Example: `  agentrun blobs get blob:sha256:<hex> >picture.png`,
		Args:    positional(1, 1, "the reference of a blob"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := parseBlob(args[0])
			if err != nil {
				return usagef("%w", err)
			}
			return b.with(cmd, func(ctx context.Context, s *openStore) error { return b.get(ctx, s, ref) })
		},
	}
}

// parseBlob reads a reference in any of its forms.
func parseBlob(text string) (blobref.Ref, error) {
	if hex, ok := strings.CutPrefix(text, "blob://sha256/"); ok {
		return blobref.ParseHex(hex)
	}
	if len(text) == blobref.HexLen {
		return blobref.ParseHex(text)
	}
	return blobref.Parse(text)
}

// openStore is the store that --store names, or that of the home.
type openStore struct {
	blobstore.Store
	stack *storeurl.Stack // nil for the home

	// check reads a blob, judges it and changes nothing. nil is a store that has no
	// such thing.
	check func(context.Context, blobref.Ref) (int64, error)
	name  string
}

// checker is a store that judges a blob without moving one that is damaged.
type checker interface {
	Check(ctx context.Context, ref blobref.Ref) (int64, error)
}

// with opens the store for do. A signal ends it, and leaves no part of a blob.
func (b *blobsCommand) with(cmd *cobra.Command, do func(context.Context, *openStore) error) error {
	b.given = cmd.Flags().Changed("store")
	return b.interruptible(cmd.Context(), func(ctx context.Context) error { return b.opened(ctx, do) })
}

func (b *blobsCommand) opened(ctx context.Context, do func(context.Context, *openStore) error) (err error) {
	if b.url == "" && !b.given {
		m, err := b.manager()
		if err != nil {
			return err
		}
		s := &openStore{Store: m.Blobs(), name: m.Home()}
		if c, ok := blobstore.As[checker](s.Store); ok {
			s.check = c.Check
		}
		return do(ctx, s)
	}
	stack, err := b.openStack(ctx, b.environment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.Close()) }()
	s := &openStore{Store: stack.Store, stack: stack, name: b.url}
	// Of a layer only its own: one below would judge other bytes.
	if c, ok := stack.Store.(checker); ok {
		s.check = c.Check
	}
	return do(ctx, s)
}

// blobPut is what blobs put --json prints.
type blobPut struct {
	Ref   string `json:"ref"`
	Bytes int64  `json:"bytes"`
}

func (b *blobsCommand) put(ctx context.Context, s *openStore, name string) error {
	in := b.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, errors.Unwrap(err))
		}
		defer f.Close()
		in = f
	}
	p := b.progress("storing")
	defer p.end()
	ref, n, err := store(ctx, s.Store, &watched{in, p, 0})
	if err == nil {
		_, err = b.settle(ctx, s.Store, s.stack)
	}
	p.end()
	if ref.IsZero() {
		return err
	}
	// It is stored, also when it has not arrived everywhere.
	var perr error
	if b.json {
		perr = printJSON(b.stdout, blobPut{ref.String(), n})
	} else {
		_, perr = fmt.Fprintln(b.stdout, ref)
	}
	return errors.Join(err, perr)
}

// maxWhole is the largest stream for a store that takes blobs as a whole only.
const maxWhole = 256 << 20

// store stores a stream, in one piece where the store takes no streams.
func store(ctx context.Context, s blobstore.Store, r io.Reader) (blobref.Ref, int64, error) {
	if _, ok := s.(blobstore.Putter); ok {
		ref, n, err := blobstore.PutStream(ctx, s, r)
		if !errors.Is(err, blobstore.ErrUnsupported) {
			return ref, n, err
		}
		// A layer has the method, and the store below it takes no streams: nothing of r
		// has been read then.
	}
	data, err := io.ReadAll(io.LimitReader(r, maxWhole+1))
	switch {
	case err != nil:
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: reading it: %w", err)
	case len(data) > maxWhole:
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream: %w: this store takes blobs as a whole, and it has more than %d bytes", blobstore.ErrTooLarge, maxWhole)
	}
	ref, err := blobstore.Put(ctx, s, data)
	return ref, int64(len(data)), err
}

func (b *blobsCommand) get(ctx context.Context, s *openStore, ref blobref.Ref) error {
	p := b.progress("fetching")
	defer p.end()
	var in io.Reader
	switch blob, err := blobstore.Open(ctx, s.Store, ref); {
	case err == nil:
		defer blob.Close()
		in = blob
	case errors.Is(err, blobstore.ErrUnsupported):
		data, err := s.Get(ctx, ref)
		if err != nil {
			return err
		}
		in = strings.NewReader(string(data))
	default:
		return err
	}
	_, err := io.Copy(b.stdout, &watched{in, p, 0})
	if err != nil {
		return fmt.Errorf("writing %s: %w", ref, err)
	}
	return nil
}

// watched shows how much of a stream was read.
type watched struct {
	io.Reader
	progress *progress
	n        int64
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	w.n += int64(n)
	w.progress.bytes(w.n)
	return n, err
}

// Seek lets a layer read a file twice. A pipe has none.
func (w *watched) Seek(offset int64, whence int) (int64, error) {
	s, ok := w.Reader.(io.Seeker)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return s.Seek(offset, whence)
}
