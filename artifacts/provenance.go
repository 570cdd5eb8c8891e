package artifacts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
)

// Provenance is what the caller knows about the origin of an artifact or of a
// reserved agent id.
type Provenance struct {
	Run string // the run that writes it, as the log calls it; may be empty
	// Call is the tool call of a model that the run is of, in the words of whoever makes such calls; "" without one. A reserved id has none.
	Call string
}

// sidecar is the content of .artifact-<n>.json and .agent-<id>.json. It is
// written when the number is taken and replaced once when the file is finished,
// which adds the members from State on.
//
// oh-my-pi 18.2 and later keeps {version, producerSessionId} under the same
// name; such a file has no pid, and the artifact beside it counts as complete.
type sidecar struct {
	Run     string    `json:"run,omitempty"`
	Call    string    `json:"call,omitempty"`
	Tool    string    `json:"tool,omitempty"`
	Created time.Time `json:"created"`
	process.ID
	State  State   `json:"state,omitempty"`
	Note   string  `json:"note,omitempty"`
	Bytes  int64   `json:"bytes"`
	Lines  int64   `json:"lines"`
	CRC32C *crcHex `json:"crc32c,omitempty"`
}

// maxSidecar bounds what is read of a sidecar, in bytes.
const maxSidecar = 64 << 10

func sidecarName(id int64) string {
	return artifactSidecar + strconv.FormatInt(id, 10) + jsonSuffix
}

// encode returns the file's content.
func (s sidecar) encode() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding provenance: %w", err)
	}
	return append(b, '\n'), nil
}

// origin tells what a sidecar says.
type origin int

const (
	foreign origin = iota // there is none of ours: another program wrote the artifact
	unknown               // it is ours and cannot be read
	ours
)

// provenance reads the sidecar called name.
func (d *Dir) provenance(name string) (sidecar, origin) {
	side, from, _ := d.readProvenance(name)
	return side, from
}

// readProvenance is provenance with the content of the file, where that is as encode
// makes it.
func (d *Dir) readProvenance(name string) (side sidecar, from origin, content []byte) {
	data, err := durable.ReadFile(d.fs, d.join(name), maxSidecar)
	if errors.Is(err, fs.ErrNotExist) {
		return sidecar{}, foreign, nil
	}
	if err != nil {
		return sidecar{}, unknown, nil
	}
	s, ok := parseOwn(data)
	if ok {
		content = data
	} else if s = (sidecar{}); json.Unmarshal(data, &s) != nil {
		return sidecar{}, unknown, nil
	}
	if s.PID == 0 {
		return sidecar{}, foreign, nil
	}
	return s, ours, content
}

// crcHex is a CRC-32C that is written as eight hexadecimal digits.
type crcHex uint32

func (c crcHex) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%08x", uint32(c)), nil }

func (c *crcHex) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 32)
	if err != nil || len(text) != 8 {
		return fmt.Errorf("checksum %q is not eight hexadecimal digits", text)
	}
	*c = crcHex(n)
	return nil
}
