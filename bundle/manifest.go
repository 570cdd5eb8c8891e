package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// about is bundle.json, the first member: what a reader has to know before it reads
// on.
type about struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Session string `json:"session"` // id
	CWD     string `json:"cwd"`
	Title   string `json:"title,omitempty"`
}

// manifest is manifest.json, the last member.
type manifest struct {
	Entries   int       `json:"entries"`   // of the log
	Artifacts int       `json:"artifacts"` // artifact://<n>
	Blobs     int       `json:"blobs"`
	Bytes     int64     `json:"bytes"`             // of all members
	Missing   []Missing `json:"missing,omitempty"` // what did not come along
	Members   []member  `json:"members"`
}

// member is one file of a bundle.
type member struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 digest `json:"sha256"`
}

// Missing is something that belongs to a session and is not in its bundle.
type Missing struct {
	Name   string `json:"name"` // a reference of a blob, or a file of the artifact directory
	Reason string `json:"reason"`
}

func (m Missing) String() string { return m.Name + ": " + m.Reason }

// Damaged is an artifact whose bytes are not those that were kept.
type Damaged struct {
	Name   string `json:"name"` // a file of the artifact directory
	Reason string `json:"reason"`
}

func (d Damaged) String() string { return d.Name + ": " + d.Reason }

// digest is a SHA-256, in JSON 64 hexadecimal digits.
type digest [sha256.Size]byte

func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

func (d *digest) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(make([]byte, len(text)/2+1), text); err != nil || n != len(d) {
		return fmt.Errorf("%.80q is no SHA-256", text)
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Bounds of what is held in memory at once.
const (
	maxAbout    = 64 << 10
	maxManifest = 256 << 20
	maxMembers  = 1 << 20
)

func parseAbout(data []byte) (a about, err error) {
	switch err := json.Unmarshal(data, &a); {
	case err != nil || a.Format != Format:
		return a, errors.New("it is no bundle of agentrun: " + aboutName + " does not say so")
	case a.Version < 1 || a.Version > Version:
		return a, fmt.Errorf("it is a bundle of version %d, and this program reads version %d: import it with a newer agentrun", a.Version, Version)
	}
	return a, nil
}

func parseManifest(data []byte) (m manifest, err error) {
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s cannot be read: %w", manifestName, err)
	}
	return m, nil
}

// check compares what the manifest says with what was seen.
func (m *manifest) check(seen []member) error {
	total := int64(0)
	for i, got := range seen {
		if i >= len(m.Members) {
			return fmt.Errorf("%q is not in its manifest", got.Name)
		}
		want := m.Members[i]
		switch {
		case got.Name != want.Name:
			return fmt.Errorf("it holds %q where its manifest lists %.200q", got.Name, want.Name)
		case got.Bytes != want.Bytes:
			return fmt.Errorf("%q has %d bytes, and %d in the manifest", got.Name, got.Bytes, want.Bytes)
		case got.SHA256 != want.SHA256:
			return fmt.Errorf("%q has not the SHA-256 that its manifest lists", got.Name)
		}
		total += got.Bytes
	}
	if len(m.Members) > len(seen) {
		return fmt.Errorf("%.200q is in its manifest and not there", m.Members[len(seen)].Name)
	}
	if m.Bytes != total || m.Entries < 0 {
		return errors.New("the totals of its manifest are wrong")
	}
	return nil
}
