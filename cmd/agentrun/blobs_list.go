package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/writethrough"
	"github.com/agentrun/agentrun/outputsink"
)

func (b *blobsCommand) newList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the blobs of a store",
		Long: `ls lists references, sizes (as the store keeps them) and the times at which
blobs were stored, in no promised order. A peer (kv:) cannot list. Where a
remote (remote=) cannot be listed, the blobs that are here are, and why is told
on standard error.

With --json it is one object a line: ref, bytes, time (null where it is not
known); of a blob that cannot be looked at ref and error; and in the end
remoteError alone, when the remote could not be listed.`,
		Args: positional(0, 0, "no arguments; --store names another store"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.with(cmd, b.list) },
	}
}

// blobItem is one line of blobs ls --json.
type blobItem struct {
	Ref   string  `json:"ref"`
	Bytes *int64  `json:"bytes,omitempty"`
	Time  *string `json:"time"`
	Error string  `json:"error,omitempty"`
}

// blobListEnd is the last line of blobs ls --json when only the local part was listed.
type blobListEnd struct {
	RemoteError string `json:"remoteError"`
}

// unlisted says why a remote is not in a list, and returns it for the output. It is nil
// for any other error.
func (b *blobsCommand) unlisted(err error) *string {
	if !errors.Is(err, writethrough.ErrRemoteUnlisted) {
		return nil
	}
	b.say("%v; this is what is here", err)
	return orNull(err.Error())
}

func (b *blobsCommand) list(ctx context.Context, s *openStore) (err error) {
	out := bufio.NewWriter(b.stdout)
	defer func() {
		if ferr := out.Flush(); err == nil {
			err = ferr
		}
	}()
	bad := 0
	for info, err := range blobstore.Walk(ctx, s.Store) {
		why := b.unlisted(err)
		switch {
		case why != nil && b.json:
			err = printJSON(out, blobListEnd{RemoteError: *why})
		case why != nil:
			err = nil
		case err != nil && info.Ref.IsZero():
			return err
		case err != nil:
			bad++
			b.say("%v", err)
			if b.json {
				err = printJSON(out, blobItem{Ref: info.Ref.String(), Error: err.Error()})
			} else {
				err = nil
			}
		case b.json:
			err = printJSON(out, blobItem{Ref: info.Ref.String(), Bytes: &info.Size, Time: timestamp(info.ModTime)})
		default:
			_, err = fmt.Fprintf(out, "%s  %10s  %s\n", info.Ref, outputsink.FormatBytes(info.Size), localTime(info.ModTime))
		}
		if err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%s cannot be looked at", count(int64(bad), "blob", "blobs"))
	}
	return nil
}

func (b *blobsCommand) newStats() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count the blobs of a store",
		Long: `stats counts blobs and bytes, as the store keeps them: of an encrypted one those
of the ciphertext.

With --json it is one object: store, mode (verified or opaque), blobs, bytes,
largest, oldest, newest, remoteError: why the remote could not be listed, so
that the others count what is here (else null), and queued: how many blobs wait
for the remote.`,
		Args: positional(0, 0, "no arguments; --store names another store"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.with(cmd, b.stats) },
	}
}

// blobStats is what blobs stats --json prints.
type blobStats struct {
	Store   string  `json:"store"`
	Mode    string  `json:"mode"`
	Blobs   int64   `json:"blobs"`
	Bytes   int64   `json:"bytes"`
	Largest int64   `json:"largest"`
	Oldest  *string `json:"oldest"`
	Newest  *string `json:"newest"`
	Remote  *string `json:"remoteError"`
	Queued  *int    `json:"queued,omitempty"`
}

func (b *blobsCommand) stats(ctx context.Context, s *openStore) error {
	r := blobStats{Store: s.name, Mode: blobstore.ModeOf(s.Store).String()}
	var oldest, newest time.Time
	p := b.progress("counting blobs")
	defer p.end()
	for info, err := range blobstore.Walk(ctx, s.Store) {
		if err != nil {
			if r.Remote = b.unlisted(err); r.Remote != nil {
				break
			}
			if info.Ref.IsZero() {
				return err
			}
			b.say("%v", err)
			continue
		}
		r.Blobs++
		r.Bytes += info.Size
		r.Largest = max(r.Largest, info.Size)
		if at := info.ModTime; !at.IsZero() {
			if oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
			if at.After(newest) {
				newest = at
			}
		}
		p.bytes(r.Bytes)
	}
	p.end()
	r.Oldest, r.Newest = timestamp(oldest), timestamp(newest)
	if s.stack != nil && s.stack.Writethrough != nil {
		queued := s.stack.Writethrough.Queued()
		r.Queued = &queued
	}
	if b.json {
		return printJSON(b.stdout, r)
	}
	out := table(b.stdout)
	fmt.Fprintf(out, "store\t%s\n", oneLine(r.Store))
	fmt.Fprintf(out, "mode\t%s\n", r.Mode)
	fmt.Fprintf(out, "blobs\t%d\n", r.Blobs)
	fmt.Fprintf(out, "bytes\t%s\n", outputsink.FormatBytes(r.Bytes))
	fmt.Fprintf(out, "largest\t%s\n", outputsink.FormatBytes(r.Largest))
	fmt.Fprintf(out, "oldest\t%s\n", localTime(oldest))
	fmt.Fprintf(out, "newest\t%s\n", localTime(newest))
	if r.Queued != nil {
		fmt.Fprintf(out, "queued\t%d\n", *r.Queued)
	}
	return out.Flush()
}
