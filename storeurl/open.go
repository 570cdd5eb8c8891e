package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/cached"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/retry"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/blobstore/writethrough"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

// Options say what is not in a store URL. The zero value takes tokens from the
// environment: AGENTRUN_STORE_TOKEN or the file that AGENTRUN_STORE_TOKEN_FILE names
// for http and https, AGENTRUN_KV_TOKEN for kv. Credentials of s3 are those that
// package s3store lists.
type Options struct {
	// Sync makes what is stored on this machine survive power loss, not only the
	// process.
	Sync bool

	// Opaque opens a store as one whose ids are no hashes of what it holds, for
	// somebody else who encrypts: a peer that it is served to. It excludes encrypted=
	// in the URL.
	Opaque bool

	// TLS configures TLS: client certificates, authorities of one's own. nil is what
	// CertFileEnv, KeyFileEnv and CAFileEnv say, and else the system's.
	TLS *tls.Config

	// Token returns the bearer token for a server of kind KV, HTTP or HTTPS, "" for
	// none; nil takes it from the environment.
	Token func(kind Kind, server string) (string, error)

	// KDF is what new passphrases cost who guesses; the zero value is the default of
	// package encrypted.
	KDF encrypted.KDF

	// Lookup looks up variables of the environment: tokens and credentials; nil is
	// os.LookupEnv.
	Lookup func(name string) (string, bool)

	// Observer is told what every layer does; nil: nobody.
	Observer blobstore.Observer

	// Report is told what goes wrong where no caller waits, and that others may read a
	// file of passphrases; nil: nobody. It is called
	// concurrently.
	Report func(error)
}

// Stack is an open store with its layers.
type Stack struct {
	// Store is the outermost layer.
	Store blobstore.Store

	// Base is the store itself, below all layers.
	Base blobstore.Store

	// These are the layers, nil where the URL has none.
	Encrypted    *encrypted.Store
	Cached       *cached.Store
	Writethrough *writethrough.Store

	// Remote is where blobs go to besides, nil without remote=.
	Remote blobstore.Store

	remoteBase blobstore.Store // below the layers of the remote

	close  []func() error
	url    URL
	opts   Options
	memory pointers.Memory // of a mem
}

// Close frees all layers, the outermost first. What is queued for a remote stays in the
// queue; Flush waits for it.
func (s *Stack) Close() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	s.close = nil
	return errors.Join(errs...)
}

// IsMemory reports whether the store itself forgets when it is closed.
func (s *Stack) IsMemory() bool { return s.url.Kind == Memory }

// Open opens the store that a text names. The store of a directory or database is made
// with its first blob; a remote one is asked nothing yet.
func Open(ctx context.Context, text string, o Options) (*Stack, error) {
	u, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return u.Open(ctx, o)
}

// Open opens the store.
func (u URL) Open(ctx context.Context, o Options) (_ *Stack, err error) {
	s := &Stack{url: u}
	defer func() {
		if err != nil {
			_ = s.Close()
			err = fmt.Errorf("opening store %s: %w", u, err)
		}
	}()
	if !u.Kind.local() || u.Remote != nil {
		if o.TLS, err = o.tlsConfig(); err != nil {
			return nil, err
		}
	}
	s.opts = o
	if o.Opaque && (u.PassphraseFile != "" || u.Remote != nil && u.Remote.PassphraseFile != "") {
		return nil, fmt.Errorf("%w: its user encrypts, and so would this side", blobstore.ErrMode)
	}
	below := blobstore.Verified
	if u.PassphraseFile != "" || o.Opaque {
		below = blobstore.Opaque
	}
	if s.Base, err = s.base(ctx, u, below, o); err != nil {
		return nil, err
	}
	s.Store = s.Base
	switch {
	case u.Remote != nil:
		if err := s.send(ctx, u, below, o); err != nil {
			return nil, err
		}
	case u.Retry:
		s.Store = retry.New(s.Store, retry.Policy{Observer: o.Observer})
	}
	if u.PassphraseFile != "" {
		if s.Encrypted, err = encrypt(s.Store, u, o); err != nil {
			return nil, err
		}
		s.Store = s.Encrypted
	}
	if u.CachedBytes > 0 {
		s.Cached = cached.New(s.Store, cached.Options{MaxBytes: u.CachedBytes, Observer: o.Observer})
		s.Store = s.Cached
	}
	return s, nil
}

// base opens the store of a URL, without its layers.
func (s *Stack) base(ctx context.Context, u URL, mode blobstore.Mode, o Options) (blobstore.Store, error) {
	switch u.Kind {
	case Dir:
		return localdir.Open(u.Place, localdir.Options{Mode: mode, Sync: o.Sync, Adopt: !isOfHome(u.Place)})
	case DiskKV:
		store, damage, err := diskkv.Open(ctx, u.Place, diskkv.Options{Mode: mode, Sync: o.Sync})
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, store.Close)
		if damage != nil && o.Report != nil {
			o.Report(damage)
		}
		return store, nil
	case KV:
		return s.peer(u, mode, o)
	case HTTP, HTTPS:
		token, err := o.token(u)
		if err != nil {
			return nil, err
		}
		store, err := httpstore.Open(u.Place, httpstore.Options{Mode: mode, Token: token, TLS: o.TLS, Observer: o.Observer})
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, store.Close)
		return store, nil
	case S3:
		bucket, prefix, _ := strings.Cut(u.Place, "/")
		store, err := s3store.Open(s3store.Options{
			Endpoint: u.Endpoint, Region: u.Region, Bucket: bucket, Prefix: prefix,
			Mode: mode, TLS: o.TLS, Observer: o.Observer, Credentials: o.credentials(),
		})
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, store.Close)
		return store, nil
	case Memory:
		return memory.New(mode), nil
	}
	return nil, fmt.Errorf("there is no store of kind %q", u.Kind)
}

// peer is the store of a peer that speaks the key-value stream. It is connected to when
// it is first asked, so that a layer that works without it can be opened.
func (s *Stack) peer(u URL, mode blobstore.Mode, o Options) (blobstore.Store, error) {
	token, err := o.token(u)
	if err != nil {
		return nil, err
	}
	remote := kv.RemoteOptions{Mode: mode, Observer: o.Observer}
	dialer, err := kvhttp.NewDialer(u.Place, kvhttp.ServicePath, kv.MaxMessage(kv.DefaultMaxBlob), kvhttp.DialOptions{Remote: remote, Token: token, TLS: o.TLS})
	if err != nil {
		return nil, err
	}
	store := kv.NewRemote(dialer.Open, remote)
	s.close = append(s.close, store.Close)
	return store, nil
}

// send puts the layer that sends to a remote around the store.
func (s *Stack) send(ctx context.Context, u URL, mode blobstore.Mode, o Options) error {
	r := *u.Remote
	below := mode
	if r.PassphraseFile != "" {
		below = blobstore.Opaque
	}
	remote, err := s.base(ctx, r, below, o)
	if err != nil {
		return fmt.Errorf("the remote: %w", err)
	}
	s.remoteBase = remote
	if u.Retry || r.Retry {
		remote = retry.New(remote, retry.Policy{Observer: o.Observer})
	}
	if r.PassphraseFile != "" {
		if remote, err = encrypt(remote, r, o); err != nil {
			return fmt.Errorf("the remote: %w", err)
		}
	}
	queue, err := s.queue(u)
	if err != nil {
		return err
	}
	s.Writethrough, err = writethrough.New(s.Store, remote, queue, writethrough.Options{Sync: o.Sync, Observer: o.Observer, Report: o.Report})
	if err != nil {
		return err
	}
	s.close = append(s.close, s.Writethrough.Close)
	s.Store, s.Remote = s.Writethrough, remote
	return nil
}

// encrypt puts the encrypting layer around a store.
func encrypt(store blobstore.Store, u URL, o Options) (*encrypted.Store, error) {
	keys, err := encrypted.OpenKeyring(u.PassphraseFile, o.Report)
	if err != nil {
		return nil, err
	}
	form := encrypted.Own
	if u.SeedForm {
		form = encrypted.Seed
	}
	return encrypted.New(store, keys, encrypted.Options{Form: form, KDF: o.KDF, Observer: o.Observer})
}
