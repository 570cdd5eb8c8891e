package artifacts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// A pack holds the provenance of many finished artifacts in one file, so that a fork
// of a session with a thousand artifacts need not have a thousand files of provenance:
// their names alone would take more room than all else of it. Its name is
//
//	.artifacts-<n>-<crc>.json
//
// where n is the highest number in it and crc the CRC-32C of its content as eight
// hexadecimal digits. Its content is JSON, one object a line: what .artifact-<n>.json
// has, and the number as "id". It is never changed, so forks share it by hard link. A
// directory may have several; where there is also an .artifact-<n>.json, that counts.
const packPrefix = ".artifacts-"

const (
	// packFrom is the number of files of provenance from which a fork packs them.
	packFrom = 128
	// maxPack bounds what is read of a pack, in bytes, and maxPacked how many
	// artifacts are in one.
	maxPack   = 64 << 20
	maxPacked = 100_000
)

// packed is one line of a pack.
type packed struct {
	Number int64 `json:"id"`
	sidecar
}

func packName(top int64, content []byte) string {
	return fmt.Sprintf("%s%d-%08x%s", packPrefix, top, crc32.Checksum(content, castagnoli), jsonSuffix)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// parsePack reads the name of a pack.
func parsePack(name string) (top int64, ok bool) {
	rest, ok := strings.CutPrefix(name, packPrefix)
	if !ok {
		return 0, false
	}
	if rest, ok = strings.CutSuffix(rest, jsonSuffix); !ok {
		return 0, false
	}
	number, sum, ok := strings.Cut(rest, "-")
	if !ok || len(sum) != 8 || strings.Trim(sum, "0123456789abcdef") != "" {
		return 0, false
	}
	return ParseID(number)
}

// errPack is returned for a pack that is not what its name says.
var errPack = errors.New("not a pack of provenance")

// loadPack returns the content of a pack, and the highest number in it.
func loadPack(fsys durable.FS, path string) (data []byte, top int64, err error) {
	data, err = durable.ReadFile(fsys, path, maxPack)
	if err != nil {
		return nil, 0, err
	}
	top, ok := parsePack(filepath.Base(path))
	if !ok || packName(top, data) != filepath.Base(path) {
		return nil, 0, fmt.Errorf("%s: %w", path, errPack)
	}
	return data, top, nil
}

// readPack reads a pack. Whoever made it, its lines are checked one by one.
func readPack(fsys durable.FS, path string) (map[int64]sidecar, error) {
	data, top, err := loadPack(fsys, path)
	if err != nil {
		return nil, err
	}
	sides := make(map[int64]sidecar, bytes.Count(data, []byte("\n")))
	for line := range bytes.Lines(data) {
		p, ok := parseOwnPacked(line)
		if !ok {
			p = packed{}
			ok = json.Unmarshal(line, &p) == nil
		}
		if !ok || p.Number < 0 || p.Number > top || p.PID == 0 || len(sides) == maxPacked {
			return nil, fmt.Errorf("%s: %w", path, errPack)
		}
		sides[p.Number] = p.sidecar
	}
	return sides, nil
}

// packing gathers the provenance of finished artifacts while their bytes are brought
// along.
type packing struct {
	content []byte
	ids     map[int64]bool // in content
	sides   map[int64]sidecar
	top     int64
}

func newPacking(n int) *packing {
	return &packing{content: make([]byte, 0, 256*n), ids: make(map[int64]bool, n), sides: make(map[int64]sidecar, n), top: -1}
}

// add takes in what dir knows of artifact id, if that is final and there is room.
func (p *packing) add(dir *Dir, id int64) {
	if p.ids[id] || len(p.ids) == maxPacked {
		return
	}
	side, from, content := dir.readProvenance(sidecarName(id))
	if from != ours || side.State == "" || len(p.content)+maxSidecar >= maxPack {
		return
	}
	if content != nil {
		p.content = append(append(strconv.AppendInt(append(p.content, `{"id":`...), id, 10), ','), content[1:]...)
	} else if line, err := json.Marshal(packed{id, side}); err == nil {
		p.content = append(append(p.content, line...), '\n')
	} else {
		return
	}
	p.ids[id], p.sides[id], p.top = true, side, max(p.top, id)
}

// publish puts the pack into the source, where the next fork finds it, and into the
// clone. A source that cannot be written to has none.
func (d *cloneDir) publish(p *packing) error {
	name := packName(p.top, p.content)
	from, to := filepath.Join(d.from, name), filepath.Join(d.to, name)
	if err := d.writePack(d.from, name, p.content); err == nil && d.fs.Link(from, to) == nil {
		return nil
	}
	return d.writePack(d.to, name, p.content)
}

// writePack is durable.WriteFile without a sync of the directory: what is not there
// after a power cut is made again, and a clone is synced when all of it is there.
func (d *cloneDir) writePack(dir, name string, content []byte) error {
	f, err := durable.CreateTemp(d.fs, dir, name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && d.opt.Sync {
		err = f.Sync()
	}
	if err := d.closeMade(f, err); err != nil {
		return err
	}
	if err := d.fs.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		_ = d.fs.Remove(f.Name()) // the first error is the one to report
		return err
	}
	return nil
}

// packed returns the provenance of artifact id from the packs that a listing found.
func (d *Dir) packed(s *snapshot, id int64) (sidecar, origin) {
	from := foreign
	for _, name := range s.packs {
		sides, err := d.pack(name)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				from = unknown // it may have been there
			}
			continue
		}
		if side, ok := sides[id]; ok {
			return side, ours
		}
	}
	return sidecar{}, from
}

// pack reads a pack once: what is under its name never changes.
func (d *Dir) pack(name string) (map[int64]sidecar, error) {
	d.packsMu.Lock()
	defer d.packsMu.Unlock()
	if sides, ok := d.packs[name]; ok {
		return sides, nil
	}
	sides, err := readPack(d.fs, d.join(name))
	if err != nil {
		return nil, err
	}
	if d.packs == nil {
		d.packs = map[string]map[int64]sidecar{}
	}
	d.packs[name] = sides
	return sides, nil
}

// packedIDs are the numbers whose provenance a pack in from has, and what it says of
// them, as far as it was made here.
func (d *cloneDir) packedIDs() (map[int64]bool, map[int64]sidecar) {
	ids, sides := map[int64]bool{}, map[int64]sidecar{}
	for name := range d.names {
		if _, ok := parsePack(name); !ok || !d.has(name) {
			continue
		}
		data, _, err := loadPack(d.fs, filepath.Join(d.from, name))
		if err != nil {
			continue
		}
		// Its lines were made here, and whoever reads one later looks closer.
		for line := range bytes.Lines(data) {
			if p, ok := parseOwnPacked(line); ok {
				sides[p.Number] = p.sidecar
			}
			number, ok := bytes.CutPrefix(line, []byte(`{"id":`))
			number, _, found := bytes.Cut(number, []byte(","))
			if id, isID := ParseID(string(number)); ok && found && isID {
				ids[id] = true
			}
		}
	}
	return ids, sides
}

// sidecarID reads the name of a file of provenance.
func sidecarID(name string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, artifactSidecar)
	if !ok {
		return 0, false
	}
	if rest, ok = strings.CutSuffix(rest, jsonSuffix); !ok {
		return 0, false
	}
	id, ok := ParseID(rest)
	return id, ok && strconv.FormatInt(id, 10) == rest
}
