package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// index is <stem>.index: answers that would need a read of the whole log. It is
// rebuildable and never believed unless it is of the very file: the same inode,
// at least as long, and with the same bytes before Offset. It ends with a crc, as a
// line of a log does: settings that a flipped bit changed would be believed.
type index struct {
	Version int    `json:"version"`
	Dev     uint64 `json:"dev"`
	Ino     uint64 `json:"ino"`
	Offset  int64  `json:"offset"` // how far the log was read
	Tail    uint32 `json:"tail"`   // CRC-32C of the indexTail bytes before Offset

	// Settings are those in force before the entry First, the first one that a
	// context needed.
	First    string         `json:"first,omitempty"`
	FirstAt  int64          `json:"firstAt,omitempty"`
	Settings entry.Settings `json:"settings"`

	// MaxArtifact is the highest artifact id in the log before ArtifactsTo, -1 for
	// none. Both answers are from different moments.
	MaxArtifact int64 `json:"maxArtifact"`
	ArtifactsTo int64 `json:"artifactsTo"`

	// Given is the title that the entries before Given.To give.
	Given given `json:"given"`
}

const (
	indexVersion = 3
	indexTail    = 4096
	// indexLimit bounds what is read as an index.
	indexLimit = 1 << 20
	// indexFrom is the size of a log from which an index is worth its file.
	indexFrom = 1 << 20
)

// tailSum is the checksum over the bytes before offset.
func tailSum(src source, offset int64) (uint32, error) {
	buf, err := readSpan(src, max(0, offset-indexTail), offset, nil)
	return crc32.Checksum(buf, crc32.MakeTable(crc32.Castagnoli)), err
}

func readIndex(fsys durable.FS, path string) ([]byte, error) {
	return durable.ReadFile(fsys, catalog.IndexPath(path), indexLimit)
}

// loadIndex reads the index if it is of the file that st is of.
func (s *Session) loadIndex(st state) (index, bool) {
	var ix index
	if st.cold || st.image != nil || st.file == nil {
		return ix, false
	}
	data, err := readIndex(s.fs, s.Path())
	if err != nil || record.Verify(record.Trim(data)) != record.CRCOK || json.Unmarshal(data, &ix) != nil {
		return ix, false
	}
	if ix.Version != indexVersion || ix.Dev != st.id.Dev || ix.Ino != st.id.Ino ||
		ix.Offset < 0 || ix.Offset > st.src.size || ix.MaxArtifact < -1 || ix.ArtifactsTo < 0 || ix.ArtifactsTo > ix.Offset ||
		ix.Given.To < 0 || ix.Given.To > ix.Offset {
		return ix, false
	}
	sum, err := tailSum(st.src, ix.Offset)
	return ix, err == nil && sum == ix.Tail
}

// keepIndex notes something that was learnt of st for the index that Close writes.
func (s *Session) keepIndex(st state, set func(*index)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.st.file != st.file {
		return // another file took its place meanwhile
	}
	if s.index == nil {
		s.index = &index{MaxArtifact: -1}
		if ix, ok := s.loadIndex(s.st); ok {
			*s.index = ix
		}
	}
	set(s.index)
}

// saveIndex writes what keepIndex noted. s.mu is held.
func (s *Session) saveIndex() {
	st := &s.st
	if s.index == nil || s.readOnly || st.file == nil || st.cold || st.image != nil || st.src.size < indexFrom {
		return
	}
	ix := *s.index
	ix.Version, ix.Dev, ix.Ino, ix.Offset = indexVersion, st.id.Dev, st.id.Ino, st.src.size
	var err error
	if ix.Tail, err = tailSum(st.src, ix.Offset); err == nil {
		var data []byte
		if data, err = json.Marshal(ix); err == nil {
			err = durable.WriteFile(s.fs, catalog.IndexPath(s.Path()), false, record.Seal(data[:len(data)-1], 0))
		}
	}
	if err != nil {
		s.report(Event{Kind: EventIndex, Path: s.Path(), Err: err})
	}
}

// MaxArtifactID returns the highest id of an artifact that the log knows, -1 when
// it knows none. Ids beyond it were never told to anybody through this log.
func (s *Session) MaxArtifactID(ctx context.Context) (int64, error) {
	highest, err := s.ownMaxArtifactID(ctx)
	dir, nested := s.rootArtifacts()
	if err != nil || !nested {
		return highest, err
	}
	root, err := s.manager.View(ctx, dir+catalog.PlainExt)
	if err != nil {
		return -1, fmt.Errorf("asking the session whose artifacts these are: %w", err)
	}
	defer root.Close()
	others, err := root.MaxArtifactID(ctx)
	return max(highest, others), err
}

func (s *Session) ownMaxArtifactID(ctx context.Context) (int64, error) {
	st, err := s.snapshot(ctx)
	if err != nil {
		return -1, err
	}
	if st.file == nil || st.none {
		return -1, nil
	}
	highest, from := int64(-1), st.end
	s.mu.Lock()
	known := s.artifacts
	s.mu.Unlock()
	if known.file == st.file {
		highest, from = known.highest, known.end
	} else if ix, ok := s.loadIndex(st); ok {
		highest, from = ix.MaxArtifact, max(st.end, ix.ArtifactsTo)
	}
	err = inBlocks(ctx, from, st.src.size, func() func(a, b int64) highestIn {
		var buf []byte
		return func(a, b int64) highestIn {
			lines, _, err := blockLines(st.src, from, a, b, st.src.size, buf)
			if err == nil && len(lines) > 0 {
				buf = lines[:0]
			}
			return highestIn{highestArtifact(lines), err}
		}
	}, func(found highestIn) error {
		highest = max(highest, found.id)
		return found.err
	})
	if err != nil {
		return -1, err
	}
	s.mu.Lock()
	end := max(st.end, st.lastAt) // the last line may grow
	s.artifacts = artifactMark{st.file, end, highest}
	s.mu.Unlock()
	s.keepIndex(st, func(ix *index) { ix.MaxArtifact, ix.ArtifactsTo = highest, end })
	return highest, nil
}

// highestIn is the highest id of an artifact in a block, -1 for none.
type highestIn struct {
	id  int64
	err error
}

var artifactSearch = &wordSearch{words: []string{artifactWord}}

// highestArtifact returns the highest id of an artifact that lines name, -1 for none.
func highestArtifact(lines []byte) int64 {
	highest := int64(-1)
	for len(lines) > 0 {
		at := artifactSearch.next(lines)
		if at == len(lines) {
			break
		}
		begin, end := bytes.LastIndexByte(lines[:at], '\n')+1, len(lines)
		if i := bytes.IndexByte(lines[at:], '\n'); i >= 0 {
			end = at + i
		}
		eachRecord(lines[begin:end], func(raw []byte, _ int, _ record.Envelope) {
			highest = max(highest, artifactIn(raw))
		}, nil)
		lines = lines[min(end+1, len(lines)):]
	}
	return highest
}

// artifactMark is how far a log was read for artifact ids.
type artifactMark struct {
	file    durable.File
	end     int64
	highest int64
}

var artifactKey = []byte(artifactWord)

// artifactPaths are where a message may name an artifact.
var artifactPaths = []string{"details.artifact.id", "details.meta.truncation.artifactId", "meta.truncation.artifactId", "details.artifactId"}

// artifactIn returns the artifact id in a message: in the details of a run of
// ours, or where oh-my-pi notes the file that holds the whole output of a tool.
func artifactIn(raw []byte) int64 {
	highest := int64(-1)
	message := gjson.GetBytes(raw, "message")
	for _, path := range artifactPaths {
		v := message.Get(path)
		if !v.Exists() || len(v.String()) > 15 {
			continue
		}
		highest = max(highest, v.Int())
	}
	return highest
}
