package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internal/process"
)

// ErrWriting is returned by Settle for an artifact whose writer may still live.
var ErrWriting = errors.New("it is being written")

// Settle records how artifact id ended, for one whose writer did not, or whose
// provenance cannot be read: state, the note that explains it, and what ix says about
// the file as it is now, its checksum among it. The run of p is recorded where
// the provenance does not tell one. It is durable when Settle returns. The bytes of
// the artifact are not touched.
func (d *Dir) Settle(ctx context.Context, id int64, p Provenance, state State, note string, ix lineindex.Index) error {
	if err := d.settle(ctx, id, p, state, note, ix); err != nil {
		return fmt.Errorf("recording the end of artifact %d: %w", id, err)
	}
	return nil
}

func (d *Dir) settle(ctx context.Context, id int64, p Provenance, state State, note string, ix lineindex.Index) error {
	release, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	info, err := d.Lookup(ctx, id)
	if err != nil {
		return err
	}
	if info.State == Writing {
		return ErrWriting
	}
	if info.Bytes != ix.Size {
		return fmt.Errorf("it has %d bytes now, and %d were looked at: %w", info.Bytes, ix.Size, ErrWriting)
	}
	side, from := d.provenance(sidecarName(id))
	if from != ours {
		side = sidecar{Run: p.Run, Created: info.ModTime.UTC(), ID: process.Self()}
	}
	if side.Run == "" {
		side.Run = p.Run
	}
	sum := crcHex(ix.CRC32C)
	side.Tool, side.State, side.Note = info.Tool, state, note
	side.Bytes, side.Lines, side.CRC32C = ix.Size, ix.Lines, &sum
	content, err := side.encode()
	if err != nil {
		return err
	}
	return durable.WriteFile(d.fs, d.join(sidecarName(id)), true, content)
}

// IndexState is what the line index that was kept of an artifact is worth.
type IndexState int

// What a kept line index is.
const (
	IndexNone  IndexState = iota // there is none, or it is of an older state of the file: it is not used
	IndexGood                    // it describes the file
	IndexWrong                   // its checksum does not hold, or it contradicts the file
)

// CheckIndex compares the line index that was kept of artifact id with ix, which
// must be that of the file as it is now.
func (d *Dir) CheckIndex(id int64, ix lineindex.Index) IndexState {
	data, err := durable.ReadFile(d.fs, d.indexName(id), lineindex.MaxEncodedLen)
	if err != nil {
		return IndexNone
	}
	kept, stamp, err := lineindex.Unmarshal(data)
	if err != nil {
		return IndexWrong
	}
	if info, err := d.Lookup(context.Background(), id); err != nil || stamp.Size != info.Bytes || stamp.ModTime != info.ModTime.UnixNano() {
		return IndexNone
	}
	if string(kept.Marshal(stamp)) != string(ix.Marshal(stamp)) {
		return IndexWrong
	}
	return IndexGood
}

// DropIndex removes the line index that was kept of artifact id. The next reader
// makes it anew.
func (d *Dir) DropIndex(id int64) error {
	if err := d.fs.Remove(d.indexName(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the line index of artifact %d: %w", id, err)
	}
	return nil
}
