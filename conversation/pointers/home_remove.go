package pointers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/agentrun/agentrun/internal/durable"
)

// asideTime is how the time is written in the name of a damaged file that was moved aside.
const asideTime = "20060102T150405.000000000"

// Remove gives up all pointers of a conversation, with their history. A file with damage is not
// deleted but moved aside, to <conversation>.jsonl.damaged-<time>. It is all or nothing.
func (d *Dir) Remove(ctx context.Context, conversation string) error {
	if err := CheckID("conversation", conversation); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return removing(conversation, err)
	}
	if err := d.change(ctx, conversation, d.remove); err != nil {
		return removing(conversation, err)
	}
	return nil
}

// change has the file of a conversation changed under the lock, and matches ErrNotFound where there is none.
func (d *Dir) change(ctx context.Context, conversation string, do func(ctx context.Context, conversation string) error) error {
	// Looked for before there is a lock, so that nothing is made where there is nothing.
	_, err := d.fs.Lstat(d.path(conversation))
	if err == nil {
		err = d.locked(ctx, func() error { return do(ctx, conversation) })
	}
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	return err
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
	case err != nil || len(j.sets) == 0 || j.damage() != nil:
		err = d.fs.RenameNoReplace(path, d.aside(path))
	default:
		err = d.fs.Remove(path)
	}
	if err != nil {
		return err
	}
	return d.fs.SyncDir(d.dir)
}

// aside is where a damaged file is kept.
func (d *Dir) aside(path string) string {
	return fmt.Sprintf("%s.damaged-%s", path, d.now().UTC().Format(asideTime))
}

// Repair gives up the lines of a conversation that are damaged. The file as it was is kept, as
// <conversation>.jsonl.damaged-<time>; the others stay what they are. One of which no line can be read is moved there.
func (d *Dir) Repair(ctx context.Context, conversation string) error {
	if err := CheckID("conversation", conversation); err != nil {
		return err
	}
	if err := d.change(ctx, conversation, d.repair); err != nil {
		return fmt.Errorf("giving up what is damaged of conversation %s: %w", conversation, err)
	}
	return nil
}

// repair is Repair; it is locked.
func (d *Dir) repair(ctx context.Context, conversation string) error {
	path := d.path(conversation)
	data, err := durable.ReadFile(d.fs, path, maxJournal)
	if err != nil {
		return err
	}
	j := d.parse(conversation, data)
	healthy := j.healthy()
	switch {
	case len(healthy) == 0:
		return d.remove(ctx, conversation)
	case j.damage() == nil:
		return fmt.Errorf("%w is damaged", ErrNotFound)
	}
	if err := durable.WriteFile(d.fs, d.aside(path), true, data); err != nil {
		return err
	}
	return durable.WriteFile(d.fs, path, true, healthy)
}
