package gc

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// The cache of marks, mark.cache in the home, is binary:
//
//	"agentrun marks 1\n"
//	CRC-32C of all that follows, 4 bytes, little endian
//	number of files, then for each: path, inode, size, mtime, references
//	number of blobs, then for each: digest, references
//
// Numbers are uvarints (mtime a varint), a path is its length and bytes, references
// are their number and their digests of 32 bytes. A reader that meets anything else
// has no cache. It is never believed about a file whose inode, size or time differ.
const (
	cacheName  = "mark.cache"
	cacheMagic = "agentrun marks 1\n"
	// maxCache bounds the memory for a cache: room for 16 million references.
	maxCache = 512 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// loadCache reads what earlier runs have learnt of a home.
func (m *marks) loadCache(home string) {
	data, err := durable.ReadFile(m.fsys, filepath.Join(home, cacheName), maxCache)
	if err == nil {
		m.cached, m.blobs = parseCache(data)
	}
	if m.blobs == nil {
		m.blobs = map[blobref.Ref][]blobref.Ref{}
	}
}

// saveCache writes what this run has read. A cache that cannot be written is none.
func (m *marks) saveCache(home string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	files := maps.Clone(m.files)
	maps.DeleteFunc(files, func(_ string, f mentioned) bool { return f.young })
	same := func(a, b mentioned) bool { return a.stamp == b.stamp }
	if !m.newBlobs && maps.EqualFunc(files, m.cached, same) {
		return // the cache on the disk says all this already
	}
	blobs := maps.Clone(m.blobs)
	maps.DeleteFunc(blobs, func(ref blobref.Ref, _ []blobref.Ref) bool { _, ok := m.refs[ref]; return !ok })
	if data := appendCache(nil, files, blobs); len(data) <= maxCache {
		_ = durable.WriteFile(m.fsys, filepath.Join(home, cacheName), false, data)
	}
}

func appendCache(dst []byte, files map[string]mentioned, blobs map[blobref.Ref][]blobref.Ref) []byte {
	refs := func(refs []blobref.Ref) {
		dst = binary.AppendUvarint(dst, uint64(len(refs)))
		for _, ref := range refs {
			sum := ref.Sum()
			dst = append(dst, sum[:]...)
		}
	}
	dst = append(dst, cacheMagic...)
	dst = append(dst, 0, 0, 0, 0)
	start := len(dst)
	dst = binary.AppendUvarint(dst, uint64(len(files)))
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		dst = binary.AppendUvarint(dst, uint64(len(path)))
		dst = append(dst, path...)
		dst = binary.AppendUvarint(dst, f.stamp.ino)
		dst = binary.AppendUvarint(dst, uint64(f.stamp.size))
		dst = binary.AppendVarint(dst, f.stamp.mtime)
		refs(f.refs)
	}
	dst = binary.AppendUvarint(dst, uint64(len(blobs)))
	for ref, cites := range blobs {
		sum := ref.Sum()
		dst = append(dst, sum[:]...)
		refs(cites)
	}
	binary.LittleEndian.PutUint32(dst[start-4:], crc32.Checksum(dst[start:], castagnoli))
	return dst
}

// parseCache returns nil maps for what appendCache would not have written.
func parseCache(data []byte) (map[string]mentioned, map[blobref.Ref][]blobref.Ref) {
	rest, ok := bytes.CutPrefix(data, []byte(cacheMagic))
	if !ok || len(rest) < 4 || binary.LittleEndian.Uint32(rest) != crc32.Checksum(rest[4:], castagnoli) {
		return nil, nil
	}
	p := parser{rest: rest[4:], ok: true}
	n := p.number(2)
	files := make(map[string]mentioned, n)
	for range n {
		path := string(p.take(p.number(1)))
		var f mentioned
		f.stamp.ino = p.uvarint()
		f.stamp.size = int64(p.uvarint())
		f.stamp.mtime = p.varint()
		f.refs = p.refs()
		files[path] = f
	}
	n = p.number(blobref.HexLen / 2)
	blobs := make(map[blobref.Ref][]blobref.Ref, n)
	for range n {
		ref := p.ref()
		blobs[ref] = p.refs()
	}
	if !p.ok || len(p.rest) > 0 {
		return nil, nil
	}
	return files, blobs
}

// parser takes values one by one; ok turns false for good when one is missing.
type parser struct {
	rest []byte
	ok   bool
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	if n <= 0 {
		p.ok, p.rest = false, nil
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.rest)
	if n <= 0 {
		p.ok, p.rest = false, nil
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

// number is how many things follow, each of size bytes at least.
func (p *parser) number(size int) int {
	n := p.uvarint()
	if n > uint64(len(p.rest)/size) {
		p.ok, p.rest = false, nil
		return 0
	}
	return int(n)
}

func (p *parser) take(n int) []byte {
	taken := p.rest[:min(n, len(p.rest))]
	p.rest = p.rest[len(taken):]
	return taken
}

func (p *parser) ref() blobref.Ref {
	var sum [blobref.HexLen / 2]byte
	if copy(sum[:], p.take(len(sum))) < len(sum) {
		p.ok = false
	}
	return blobref.FromSum(sum)
}

func (p *parser) refs() []blobref.Ref {
	n := p.number(blobref.HexLen / 2)
	if n == 0 {
		return nil
	}
	refs := make([]blobref.Ref, n)
	for i := range refs {
		refs[i] = p.ref()
	}
	return refs
}
