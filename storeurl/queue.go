package storeurl

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/blobstore/s3store"
)

// queue is where the ids are of what is on its way to the remote: beside the store, a
// directory for each remote. Memory has one that goes with it.
func (s *Stack) queue(u URL) (string, error) {
	if u.Kind == Memory {
		dir, err := os.MkdirTemp("", "agentrun-queue-")
		if err != nil {
			return "", err
		}
		s.close = append(s.close, func() error { return os.RemoveAll(dir) })
		return dir, nil
	}
	place, err := filepath.Abs(u.Place)
	if err != nil {
		return "", err
	}
	// What the remote is, without how it is used.
	r := URL{Kind: u.Remote.Kind, Place: u.Remote.Place, Endpoint: u.Remote.Endpoint, Region: u.Remote.Region}
	if r.Kind == Dir || r.Kind == DiskKV {
		if r.Place, err = filepath.Abs(r.Place); err != nil {
			return "", err
		}
	}
	// One by the spelling that was used is from before all spellings had one queue, and
	// blobs may wait in it.
	spelled := queueOf(place, r)
	if _, err := os.Lstat(spelled); !errors.Is(err, fs.ErrNotExist) {
		return spelled, err
	}
	return queueOf(resolved(place), r.canonical()), nil
}

func queueOf(place string, remote URL) string {
	id := sha256.Sum256([]byte(remote.String()))
	return filepath.Join(place+".queue", hex.EncodeToString(id[:8]))
}

// canonical is a store in one of the spellings that name it.
func (u URL) canonical() URL {
	switch u.Kind {
	case Dir, DiskKV:
		u.Place = resolved(u.Place)
	case S3:
		u.Endpoint = canonicalServer(cmp.Or(u.Endpoint, s3store.DefaultEndpoint))
		u.Region = cmp.Or(u.Region, s3store.DefaultRegion)
		if u.Endpoint == s3store.DefaultEndpoint && u.Region == s3store.DefaultRegion {
			u.Endpoint, u.Region = "", "" // which is how most write it
		}
	case KV, HTTP, HTTPS:
		u.Place = canonicalServer(u.Place)
	}
	return u
}

// canonicalServer is a URL of a server that parseServer has read.
func canonicalServer(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	u.Host = strings.ToLower(u.Host)
	if host, port, err := net.SplitHostPort(u.Host); err == nil && port == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		u.Host = host
		if strings.Contains(host, ":") {
			u.Host = "[" + host + "]"
		}
	}
	return strings.TrimRight(u.String(), "/")
}

// resolved is an absolute path without symbolic links, as far as it is there.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(resolved(dir), filepath.Base(path))
}
