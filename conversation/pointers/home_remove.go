package pointers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// asideTime is how the time is written in the name of a damaged file that was moved aside.
const asideTime = "20060102T150405.000000000"

// Remove gives up all pointers of a conversation, with their history. A file that cannot be read as pointers is not
// deleted but moved aside, to <conversation>.jsonl.damaged-<time>. It is all or nothing.
func (d *Dir) Remove(ctx context.Context, conversation string) error {
	if err := CheckID("conversation", conversation); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return removing(conversation, err)
	}
	// Looked for before there is a lock, so that nothing is made where there is nothing.
	_, err := d.fs.Lstat(d.path(conversation))
	if err == nil {
		err = d.locked(ctx, func() error { return d.remove(ctx, conversation) })
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return removing(conversation, err)
	}
	return nil
}

// remove is Remove; it is locked.
func (d *Dir) remove(ctx context.Context, conversation string) error {
	path := d.path(conversation)
	if _, err := d.fs.Lstat(path); err != nil {
		return err
	}
	j, err := d.read(ctx, conversation)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || len(j.sets) == 0:
		aside := fmt.Sprintf("%s.damaged-%s", path, d.now().UTC().Format(asideTime))
		err = d.fs.RenameNoReplace(path, aside)
	default:
		err = d.fs.Remove(path)
	}
	if err != nil {
		return err
	}
	return d.fs.SyncDir(d.dir)
}
