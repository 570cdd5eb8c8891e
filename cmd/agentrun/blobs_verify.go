package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/outputsink"
)

func (b *blobsCommand) newVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Read every blob of a store and say which are damaged",
		Long: `verify reads all blobs and holds each against its name; those of an encrypted
store are decrypted for it. Of a directory nothing is changed. The exit status
is 1 when something is wrong. Where a remote (remote=) cannot be listed, the
blobs that are here are verified, and why is told on standard error.

With --json it is one object: store, blobs and bytes, of those that are right;
damaged: how many are not; problems: a list of ref (null for what is wrong with
the store itself) and problem; and remoteError: why the remote could not be
listed, else null.`,
		Args: positional(0, 0, "no arguments; --store names another store"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.with(cmd, b.verify) },
	}
}

// blobVerdict is what blobs verify --json prints.
type blobVerdict struct {
	Store    string        `json:"store"`
	Blobs    int64         `json:"blobs"`
	Bytes    int64         `json:"bytes"`
	Damaged  int64         `json:"damaged"`
	Problems []blobProblem `json:"problems"`
	Remote   *string       `json:"remoteError"`
}

type blobProblem struct {
	Ref     *string `json:"ref"`
	Problem string  `json:"problem"`
}

func (b *blobsCommand) verify(ctx context.Context, s *openStore) error {
	v := blobVerdict{Store: s.name, Problems: []blobProblem{}}
	p := b.progress("verifying")
	defer p.end()
	var mu sync.Mutex // guards v, p and read
	var read int64
	found := func(ref blobref.Ref, err error) {
		problem := blobProblem{Problem: err.Error()}
		if !ref.IsZero() {
			problem.Ref = orNull(ref.String())
			v.Damaged++
		}
		v.Problems = append(v.Problems, problem)
	}
	if s.stack != nil {
		if db, ok := s.stack.Base.(*diskkv.Store); ok {
			for finding, err := range db.Verify(ctx) {
				if err != nil {
					return err
				}
				if !strings.HasPrefix(finding.Key, "agentKv:blob:") { // those are met below, with their references
					found(blobref.Ref{}, fmt.Errorf("%s: %w", finding.Key, finding.Err))
				}
			}
		}
	}
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(runtime.NumCPU())
	for info, err := range blobstore.Walk(ctx, s.Store) {
		if err != nil {
			if v.Remote = b.unlisted(err); v.Remote != nil {
				break
			}
			if info.Ref.IsZero() {
				return errors.Join(err, readers.Wait())
			}
			mu.Lock()
			found(info.Ref, err)
			mu.Unlock()
			continue
		}
		readers.Go(func() error {
			n, err := s.judge(ctx, info.Ref)
			mu.Lock()
			defer mu.Unlock()
			read += n
			p.bytes(read)
			switch {
			case err == nil:
				v.Blobs++
				v.Bytes += n
			case errors.Is(err, blobstore.ErrNotFound): // deleted meanwhile
			case errors.Is(err, blobstore.ErrCorrupt) && errors.Is(err, blobstore.ErrUnavailable):
				found(info.Ref, err) // damaged here, and not to be had from the remote now
			case ctx.Err() != nil, errors.Is(err, blobstore.ErrUnavailable), errors.Is(err, encrypted.ErrWrongKey):
				return err // says nothing of the blob
			default:
				found(info.Ref, err)
			}
			return nil
		})
	}
	if err := readers.Wait(); err != nil {
		return err
	}
	p.end()
	return b.printVerdict(v)
}

// judge reads a blob and returns what is wrong with it.
func (s *openStore) judge(ctx context.Context, ref blobref.Ref) (int64, error) {
	if s.check != nil {
		return s.check(ctx, ref)
	}
	// Open has verified all of a blob when it returns, in bounded memory.
	switch blob, err := blobstore.Open(ctx, s.Store, ref); {
	case err == nil:
		return blob.Size(), blob.Close()
	case !errors.Is(err, blobstore.ErrUnsupported):
		return 0, err
	}
	data, err := s.Get(ctx, ref)
	return int64(len(data)), err
}

func (b *blobsCommand) printVerdict(v blobVerdict) error {
	if b.json {
		if err := printJSON(b.stdout, v); err != nil {
			return err
		}
	} else {
		for _, problem := range v.Problems {
			fmt.Fprintln(b.stdout, oneLine(problem.Problem))
		}
		damaged := ""
		if v.Damaged > 0 {
			damaged = fmt.Sprintf("; %d damaged", v.Damaged)
		}
		b.remark("%s verified, %s%s", count(v.Blobs, "blob", "blobs"), outputsink.FormatBytes(v.Bytes), damaged)
	}
	if n := len(v.Problems); n > 0 {
		return fmt.Errorf("%s in %s", count(int64(n), "problem", "problems"), v.Store)
	}
	return nil
}

func (b *blobsCommand) newRotate() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Bring an encrypted store under its newest passphrase",
		Long: `rotate rewrites what is under older passphrases of the passphrase file, whose
first line is the newest, and what is in another form than --store says. Blobs
stay readable all the time. It can be interrupted and run again; afterwards the
older passphrases can go from the file.

Before they do, processes that still run with the older passphrases must have
ended: what such a process stores is under them. End those, and run rotate once
more.

With --json it is one object: seen, rewrapped (headers alone were rewritten),
reencrypted, moved, failed, bytes.`,
		Example: `  agentrun blobs rotate --store 'dir:blobs?encrypted=passphrase-file:keys'`,
		Args:    positional(0, 0, "no arguments; --store names the store"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.url == "" {
				return usagef("the home is not encrypted: name an encrypted store, as in --store 'dir:PATH?encrypted=passphrase-file:FILE'")
			}
			return b.with(cmd, b.rotate)
		},
	}
}

// blobRotation is what blobs rotate --json prints.
type blobRotation struct {
	Seen        int   `json:"seen"`
	Rewrapped   int   `json:"rewrapped"`
	Reencrypted int   `json:"reencrypted"`
	Moved       int   `json:"moved"`
	Failed      int   `json:"failed"`
	Bytes       int64 `json:"bytes"`
}

func (b *blobsCommand) rotate(ctx context.Context, s *openStore) error {
	if s.stack.Encrypted == nil {
		return usagef("%s is not encrypted: add encrypted=passphrase-file:FILE to --store", s.name)
	}
	p := b.progress("rewriting blobs")
	defer p.end()
	r, err := s.stack.Encrypted.Rotate(ctx, func(r encrypted.Rotation) { p.bytes(r.Bytes) })
	if err == nil {
		_, err = b.settle(ctx, s.Store, s.stack)
	}
	p.end()
	if b.json {
		return errors.Join(err, printJSON(b.stdout, blobRotation(r)))
	}
	fmt.Fprintf(b.stdout, "%s seen, %d rewrapped, %d encrypted anew, %d moved, %d failed\n", count(int64(r.Seen), "blob", "blobs"), r.Rewrapped, r.Reencrypted, r.Moved, r.Failed)
	return err
}
