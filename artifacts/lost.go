package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Lost lists finished artifacts whose provenance is there and whose file is not, by
// ascending number: their bytes were removed by somebody else. Those that are noted as
// missing are not among them. A directory that does not exist has none.
func (d *Dir) Lost(ctx context.Context) ([]Info, error) {
	if _, err := d.exists(ctx); noDirectory(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	entries, err := d.fs.ReadDir(d.Path())
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
	}
	return d.lostOf(ctx, entries)
}

// Used returns the numbers of which the directory has something: a file, whatever it
// is, provenance, or a note. A directory that does not exist has none.
func (d *Dir) Used() (map[int64]bool, error) {
	entries, err := d.fs.ReadDir(d.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
	}
	used := usedNames(entries)
	return used, d.addPacked(used, entries)
}

// usedNames are the numbers that names use up.
func usedNames(entries []fs.DirEntry) map[int64]bool {
	used := make(map[int64]bool, len(entries))
	for _, e := range entries {
		if id, ok := parseNumbered(e.Name()); ok {
			used[id] = true
		}
	}
	return used
}

// addPacked adds the numbers in packs to used.
func (d *Dir) addPacked(used map[int64]bool, entries []fs.DirEntry) error {
	for _, e := range entries {
		if _, ok := parsePack(e.Name()); !ok || !e.Type().IsRegular() {
			continue
		}
		sides, err := d.pack(e.Name())
		if err != nil {
			return err
		}
		for id := range sides {
			used[id] = true
		}
	}
	return nil
}

// lostOf is Lost for a directory that was listed.
func (d *Dir) lostOf(ctx context.Context, entries []fs.DirEntry) ([]Info, error) {
	there, packs := map[int64]bool{}, []string(nil)
	for _, e := range entries {
		n, numbered := parseNumbered(e.Name())
		if _, side := sidecarID(e.Name()); numbered && !side {
			there[n] = true
		}
		if _, ok := parsePack(e.Name()); ok && e.Type().IsRegular() {
			packs = append(packs, e.Name())
		}
	}
	var lost []Info
	add := func(id int64, side sidecar) {
		if side.State == "" || CleanTool(side.Tool) != side.Tool || there[id] {
			return
		}
		path := d.join(logName(id, side.Tool))
		if _, err := d.fs.Identify(path); !errors.Is(err, fs.ErrNotExist) {
			return // it was made since
		}
		there[id] = true
		lost = append(lost, Info{ID: id, Tool: side.Tool, Path: path, State: Missing, Note: "its file was removed, its provenance is there", Lines: -1})
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
		}
		if id, ok := sidecarID(e.Name()); ok && !there[id] {
			if side, from := d.provenance(e.Name()); from == ours {
				add(id, side)
			}
		}
	}
	for _, name := range packs {
		if !d.packNames(name, there) {
			continue
		}
		sides, err := d.pack(name)
		if err != nil {
			continue // who reads an artifact of it says so
		}
		for id, side := range sides {
			add(id, side)
		}
	}
	slices.SortFunc(lost, func(a, b Info) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	return lost, nil
}

// packNames reports whether a pack has a number that is not there. Its lines are not
// decoded for it.
func (d *Dir) packNames(name string, there map[int64]bool) bool {
	data, _, err := loadPack(d.fs, d.join(name))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(data) {
		number, _ := bytes.CutPrefix(line, []byte(`{"id":`))
		number, _, _ = bytes.Cut(number, []byte(","))
		if id, ok := ParseID(string(number)); ok && !there[id] {
			return true
		}
	}
	return false
}
