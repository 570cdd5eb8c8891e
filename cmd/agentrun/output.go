package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/agentrun/agentrun/internal/durable"
)

// outputFile is where a command writes what it makes: a file that appears whole, or
// the standard output.
type outputFile struct {
	name  string // "-" for the standard output
	force bool   // a file of that name is replaced
}

// check refuses, before any work, a name that cannot be written.
func (o outputFile) check() error {
	if o.name == "-" {
		return nil
	}
	info, err := os.Lstat(o.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("writing %s: %w", o.name, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file; give another name, or -o - for the standard output", o.name)
	case !o.force:
		return fmt.Errorf("%s is there already; give another name, or --force to replace it", o.name)
	}
	return nil
}

// write makes the file. It ends with the context, between two writes.
func (o outputFile) write(ctx context.Context, stdout io.Writer, write func(io.Writer) error) error {
	if o.name == "-" {
		return write(stdout)
	}
	err := durable.WriteOutput(nil, o.name, o.force, func(w io.Writer) error { return write(untilDone{ctx, w}) })
	if !o.force && errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s has come to be there meanwhile; give another name, or --force to replace it", o.name)
	}
	return err
}

// untilDone writes until its context ends.
type untilDone struct {
	ctx context.Context // of the one call this value lives for
	w   io.Writer
}

func (u untilDone) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}
