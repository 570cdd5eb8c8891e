package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// ExportOptions say how a bundle is made. The zero value is right for programs.
type ExportOptions struct {
	// Passphrase encrypts the bundle; "" leaves it open.
	Passphrase string
	// WorkFactor of the passphrase's key, a power of two; 0 means age's own. Less is
	// for tests.
	WorkFactor int
	// Progress is told how many bytes have been read of how many; total grows when
	// blobs are found. It may be nil.
	Progress func(done, total int64)
	// FS is the file system that artifacts are read from; nil means the real one.
	FS durable.FS
}

// Summary is what a bundle holds.
type Summary struct {
	Session   string
	Bytes     int64 // of the bundle
	Entries   int
	Artifacts int // artifact://<n>
	Blobs     int
	Missing   []Missing // what did not come along
	// Damaged are artifacts whose bytes are not those that were kept, by their
	// provenance. They came along as they are.
	Damaged []Damaged
}

// exporter writes one bundle.
type exporter struct {
	ctx  context.Context
	m    *session.Manager
	o    ExportOptions
	tar  *tar.Writer
	time time.Time // of all members: a session that did not change gives the same bundle
	refs refFinder
	buf  []byte
	list manifest
	kept map[string]artifacts.Info // finished artifacts, by the name of their member
	hurt []Damaged
	done int64
	want int64
}

// Export writes a bundle of s, a session of m, to w.
func Export(ctx context.Context, w io.Writer, m *session.Manager, s *session.Session, o ExportOptions) (_ Summary, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("exporting session %.100s: %w", s.ID(), err)
		}
	}()
	if o.FS == nil {
		o.FS = durable.OS
	}
	x := &exporter{ctx: ctx, m: m, o: o, buf: make([]byte, 1<<20), time: s.Created()}
	x.refs.found = map[blobref.Ref]bool{}
	out := &counter{w: w}
	var to io.WriteCloser = nopCloser{out}
	if o.Passphrase != "" {
		if to, err = encryptTo(out, o.Passphrase, o.WorkFactor); err != nil {
			return Summary{}, err
		}
	}
	frames, err := newFrameWriter(to)
	if err != nil {
		return Summary{}, err
	}
	defer frames.Abort()
	x.tar = tar.NewWriter(frames)
	if err := x.session(s); err != nil {
		return Summary{}, cmp.Or(frames.failed(), err)
	}
	if err := x.tar.Close(); err != nil {
		return Summary{}, err
	}
	if err := frames.Close(); err != nil {
		return Summary{}, err
	}
	if err := to.Close(); err != nil {
		return Summary{}, err
	}
	return Summary{s.ID(), out.n, x.list.Entries, x.list.Artifacts, x.list.Blobs, x.list.Missing, x.hurt}, nil
}

// session writes all members.
func (x *exporter) session(s *session.Session) error {
	var log session.Snapshot
	err := x.steadily(s, func(string) (err error) {
		log, err = s.Snapshot(x.ctx)
		return err
	})
	if err != nil {
		return err
	}
	title, err := s.Title(x.ctx)
	if err != nil {
		return err
	}
	if log.Torn > 0 {
		x.missing(logName, fmt.Sprintf("its last %d bytes are no whole line: they are damaged, or still being written", log.Torn))
	}
	pieces, err := x.pieces(s)
	if err != nil {
		return err
	}
	x.list.Entries, x.want = log.Entries, log.Size
	for _, p := range pieces {
		x.want += p.Size
	}
	if err := x.json(aboutName, about{Format, Version, s.ID(), s.CWD(), title}); err != nil {
		return err
	}
	if err := x.member(logName, log.Size, io.NewSectionReader(log, 0, log.Size), &x.refs); err != nil {
		return err
	}
	if log.Damaged != "" {
		err := x.file(damagedName, log.Damaged, -1, nil)
		for try := 0; errors.Is(err, fs.ErrNotExist) && try < maxMoves; try++ {
			err = x.steadily(s, func(string) (err error) {
				log, err = s.Snapshot(x.ctx)
				return err
			})
			if err == nil && log.Damaged != "" {
				err = x.file(damagedName, log.Damaged, -1, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	for _, p := range pieces {
		if err := x.piece(s, p); err != nil {
			return err
		}
	}
	if err := x.blobs(); err != nil {
		return err
	}
	for _, m := range x.list.Members {
		x.list.Bytes += m.Bytes
	}
	if len(x.list.Members) >= maxMembers {
		return fmt.Errorf("it has %d files, and a bundle holds fewer than %d", len(x.list.Members), maxMembers)
	}
	return x.json(manifestName, x.list)
}

// maxMoves is how often something is looked for again that is moved with its session
// meanwhile.
const maxMoves = 16

// steadily does something with the artifact directory, until that stayed where it was
// meanwhile, and what lies beside it.
func (x *exporter) steadily(s *session.Session, do func(dir string) error) error {
	for try := 0; ; try++ {
		dir, _, err := s.LocateArtifacts(x.ctx, true)
		if err != nil {
			return err
		}
		err = do(dir)
		now, settled, lerr := s.LocateArtifacts(x.ctx, false)
		if lerr == nil && settled && now == dir {
			return err
		}
		if lerr != nil || try == maxMoves {
			return errors.Join(errors.New("it is moved again and again: try again when that has ended"), err, lerr)
		}
	}
}

// pieces lists what is in the artifact directory, wherever that is moved meanwhile.
func (x *exporter) pieces(s *session.Session) (pieces []artifacts.Piece, err error) {
	if s.ArtifactsDir() == "" {
		return nil, nil
	}
	before := len(x.list.Missing)
	err = x.steadily(s, func(dir string) (err error) {
		x.list.Missing = x.list.Missing[:before]
		if pieces, err = x.piecesIn(dir); err != nil {
			return err
		}
		return x.untraced(s, dir)
	})
	return pieces, err
}

func (x *exporter) piecesIn(dir string) ([]artifacts.Piece, error) {
	pieces, left, err := artifacts.Open(dir, artifacts.Options{FS: x.o.FS}).Pieces(x.ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		x.missing(artifactsDir+l.Name, l.Reason)
	}
	return pieces, x.provenance(dir, pieces)
}

func (x *exporter) missing(name, reason string) {
	x.list.Missing = append(x.list.Missing, Missing{name, reason})
}

// provenance notes what finished artifacts held, and which of them are gone.
func (x *exporter) provenance(root string, pieces []artifacts.Piece) error {
	x.kept = map[string]artifacts.Info{}
	dirs := map[string]bool{".": true}
	for _, p := range pieces {
		if strings.HasSuffix(p.Name, ".log") || strings.HasPrefix(path.Base(p.Name), ".artifact") {
			dirs[path.Dir(p.Name)] = true
		}
	}
	for _, sub := range slices.Sorted(maps.Keys(dirs)) {
		dir := artifacts.Open(filepath.Join(root, filepath.FromSlash(sub)), artifacts.Options{FS: x.o.FS})
		list, err := dir.List(x.ctx)
		if err != nil {
			return err
		}
		for _, info := range list {
			if info.HasCRC || info.State == artifacts.Changed {
				x.kept[artifactsDir+path.Join(sub, filepath.Base(info.Path))] = info
			}
		}
		lost, err := dir.Lost(x.ctx)
		if err != nil {
			return err
		}
		for _, l := range lost {
			x.missing(artifactsDir+path.Join(sub, filepath.Base(l.Path)), l.Note)
		}
	}
	return nil
}

// untraced notes artifacts of which there is nothing but what the log says.
func (x *exporter) untraced(s *session.Session, dir string) error {
	used, err := artifacts.Open(dir, artifacts.Options{FS: x.o.FS}).Used()
	if err != nil {
		return nil // what cannot be read may have them
	}
	list, err := s.UntracedArtifacts(x.ctx, dir, used)
	if err != nil {
		return err
	}
	for _, u := range list {
		x.missing(artifactsDir+path.Join(filepath.ToSlash(u.Dir), fmt.Sprintf("%d.log", u.ID)), "the log cites it, and there is neither its file nor its provenance")
	}
	return nil
}

// compare notes a member that is a finished artifact and not what was kept.
func (x *exporter) compare(name string, size int64, sum uint32) {
	info, known := x.kept[name]
	switch {
	case !known:
	case info.State == artifacts.Changed:
		x.hurt = append(x.hurt, Damaged{name, info.Note})
	case size != info.Bytes:
		x.hurt = append(x.hurt, Damaged{name, fmt.Sprintf("it had %d bytes when it was finished and has %d now", info.Bytes, size)})
	case sum != info.CRC32C:
		x.hurt = append(x.hurt, Damaged{name, fmt.Sprintf("its checksum was %08x when it was finished and is %08x now", info.CRC32C, sum)})
	}
}

func (x *exporter) json(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return x.member(name, int64(len(data))+1, bytes.NewReader(append(data, '\n')), nil)
}

// piece writes a file of the artifact directory, which may be moved between two of them.
func (x *exporter) piece(s *session.Session, p artifacts.Piece) error {
	dir := s.ArtifactsDir()
	for range maxMoves {
		err := x.pieceIn(dir, p)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		now, _, lerr := s.LocateArtifacts(x.ctx, true)
		if lerr != nil {
			return lerr
		}
		if now == dir {
			break
		}
		dir = now
	}
	return nil // discarded by who wrote it since it was listed
}

// pieceIn is piece with the directory that the file is in. The error matches
// fs.ErrNotExist when it is not there.
func (x *exporter) pieceIn(dir string, p artifacts.Piece) error {
	if why := badArtifact(p.Name); why != "" {
		x.missing(artifactsDir+strings.ToValidUTF8(p.Name, "\ufffd"), why)
		return nil
	}
	name, path := artifactsDir+p.Name, filepath.Join(dir, filepath.FromSlash(p.Name))
	if p.Data != nil {
		return x.member(name, p.Size, bytes.NewReader(p.Data), nil)
	}
	var refs *refFinder
	if strings.HasSuffix(p.Name, ".jsonl") {
		refs = &x.refs
	}
	var cold durable.File // opened before it can go elsewhere
	if strings.HasSuffix(p.Name, ".jsonl.zst") {
		var err error
		if cold, err = x.o.FS.OpenFile(path, os.O_RDONLY, 0); err != nil {
			return err
		}
		defer cold.Close()
	}
	if err := x.file(name, path, p.Size, refs); err != nil {
		return err
	}
	if p.Log {
		x.list.Artifacts++
	}
	if cold != nil {
		if err := x.scanCold(cold); err != nil {
			x.missing(name, "the blobs that it cites are not known: "+err.Error())
		}
	}
	return nil
}

// file writes a file up to size bytes, all of it when that is negative. A log, which
// has refs, ends with a whole line.
func (x *exporter) file(name, path string, size int64, refs *refFinder) error {
	f, err := x.o.FS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if size < 0 {
		id, err := f.Identify()
		if err != nil {
			return err
		}
		size = id.Size
	}
	if refs != nil {
		whole, err := session.WholeLines(f, size)
		if err != nil {
			return err
		}
		if whole < size {
			x.missing(name, fmt.Sprintf("its last %d bytes are no whole line: they are damaged, or still being written", size-whole))
		}
		size = whole
	}
	return x.member(name, size, io.NewSectionReader(f, 0, size), refs)
}

// scanCold looks for references in a compressed log.
func (x *exporter) scanCold(f durable.File) error {
	dec, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return err
	}
	defer dec.Close()
	_, err = io.CopyBuffer(&x.refs, struct{ io.Reader }{dec}, x.buf)
	return err
}

// blobs writes every blob that was cited, by name.
func (x *exporter) blobs() error {
	opener, ok := blobstore.As[blobstore.Opener](x.m.Blobs())
	if !ok {
		return errors.New("its blobs cannot be read as streams")
	}
	refs := slices.SortedFunc(slices.Values(x.refs.order), func(a, b blobref.Ref) int {
		return strings.Compare(a.Hex(), b.Hex())
	})
	for _, ref := range refs {
		blob, err := opener.Open(x.ctx, ref)
		switch {
		case errors.Is(err, blobstore.ErrNotFound), errors.Is(err, blobstore.ErrCorrupt):
			if x.refs.found[ref] {
				x.missing(ref.String(), reason(err))
			}
			continue
		case err != nil:
			return err
		}
		x.want += blob.Size()
		err = x.member(blobsDir+ref.Hex(), blob.Size(), blob, nil)
		if cerr := blob.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		x.list.Blobs++
	}
	return nil
}

func reason(err error) string {
	if errors.Is(err, blobstore.ErrCorrupt) {
		return "the blob is damaged"
	}
	return "the blob is not there"
}

// member writes one member and notes it for the manifest.
func (x *exporter) member(name string, size int64, r io.Reader, refs *refFinder) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: int64(durable.FilePerm), ModTime: x.time.Truncate(time.Second)}
	if err := x.tar.WriteHeader(&h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	hash, sum := sha256.New(), uint32(0)
	_, checked := x.kept[name]
	for left := size; left > 0; {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, x.buf[:min(left, int64(len(x.buf)))])
		if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
			return fmt.Errorf("%s got shorter while it was read: try again", name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		hash.Write(x.buf[:n])
		if checked {
			sum = crc32.Update(sum, castagnoli, x.buf[:n])
		}
		if refs != nil {
			refs.Write(x.buf[:n])
		}
		if _, err := x.tar.Write(x.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
		x.done += int64(n)
		if x.o.Progress != nil {
			x.o.Progress(x.done, max(x.want, x.done))
		}
	}
	if refs != nil {
		refs.tail = refs.tail[:0]
	}
	x.compare(name, size, sum)
	m := member{Name: name, Bytes: size}
	hash.Sum(m.SHA256[:0])
	x.list.Members = append(x.list.Members, m)
	return nil
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
