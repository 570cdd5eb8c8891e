package session

import (
	"bytes"
	"context"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// image is a file of version 1 or 2 as version 3 would write it, line for line.
// Such files are read whole: they are older than the sizes that matter.
type image struct {
	version int // of the file
	data    []byte
	// lines maps offsets in data to offsets in the file.
	lines []imageLine
}

type imageLine struct{ at, from int64 }

func (m *image) source() source { return source{bytes.NewReader(m.data), int64(len(m.data))} }

// migrate makes the image of a file. Damaged stretches stay as they are.
func migrate(src source, p preamble) (*image, error) {
	m := &image{version: p.header.Version, data: make([]byte, 0, src.size+src.size/8)}
	header := p.header
	header.Version, header.KeepTitle = record.Version, true
	if p.hasSlot {
		header.Title, header.TitleSource = p.slot.Title, p.slot.Source
	}
	m.lines = append(m.lines, imageLine{0, p.at})
	m.data = header.AppendLine(m.data)
	migrator := entry.NewMigrator(p.header.Version)
	n := 1
	err := eachForward(context.Background(), src, p.end, src.size, func(line []byte, at int64) bool {
		n++
		m.lines = append(m.lines, imageLine{int64(len(m.data)), at})
		m.addLine(migrator, line, n)
		m.data = append(m.data, '\n')
		return true
	})
	if err == nil && src.size > p.end {
		m.data = m.data[:len(m.data)-1]
		var last [1]byte
		if _, err = src.ReadAt(last[:], src.size-1); err == nil && last[0] == '\n' {
			m.data = append(m.data, '\n')
		}
	}
	return m, err
}

func (m *image) addLine(migrator *entry.Migrator, line []byte, n int) {
	e, err := record.Parse(line)
	if err == nil {
		if !e.IsHeader() && !e.IsSlot() {
			if raw, merr := migrator.Migrate(n, record.Trim(line)); merr == nil {
				m.data = append(m.data, raw...)
				return
			}
		}
		m.data = append(m.data, line...)
		return
	}
	at := 0
	for _, p := range record.Split(line) {
		if p.Kind != "" {
			continue
		}
		m.data = append(m.data, line[at:p.Off]...)
		if raw, merr := migrator.Migrate(n, line[p.Off:p.Off+p.Len]); merr == nil {
			m.data = append(m.data, raw...)
		} else {
			m.data = append(m.data, line[p.Off:p.Off+p.Len]...)
		}
		at = p.Off + p.Len
	}
	m.data = append(m.data, line[at:]...)
}

// origin says where in the file a stretch of the image is.
func (m *image) origin(d Damage) Damage {
	if i := d.Line - 1; i >= 0 && i < len(m.lines) {
		d.Offset = m.lines[i].from + (d.Offset - m.lines[i].at)
	}
	return d
}
