package bundle

import (
	"bytes"

	"github.com/agentrun/agentrun/blobref"
)

// refFinder finds what looks like a reference to a blob in a stream: as logs cite
// it, and as a URL. It may find too much, never too little.
type refFinder struct {
	found map[blobref.Ref]bool // true: cited as a log does it
	order []blobref.Ref
	tail  []byte // the end of what came, in which one may have begun
}

// The two forms up to their digits.
const (
	cited = blobref.Prefix
	asURL = "blob://sha256/"
)

// overlap is one byte less than the longer form.
const overlap = len(asURL) + blobref.HexLen - 1

// pattern is common to both forms and rare elsewhere.
var pattern = []byte("sha256")

func (f *refFinder) Write(p []byte) (int, error) {
	// What begins in the tail and ends in p, and all of a short p.
	f.tail = append(f.tail, p[:min(len(p), overlap)]...)
	f.search(f.tail)
	last := f.tail
	if len(p) >= overlap {
		f.search(p)
		last = p
	}
	f.tail = append(f.tail[:0], last[max(0, len(last)-overlap):]...)
	return len(p), nil
}

func (f *refFinder) search(b []byte) {
	for at := 0; ; {
		i := bytes.Index(b[at:], pattern)
		if i < 0 {
			return
		}
		at += i
		for _, form := range []string{cited, asURL} {
			// pattern stands one byte before the end of each form.
			from := at - (len(form) - 1 - len(pattern))
			to := from + len(form) + blobref.HexLen
			if from < 0 || to > len(b) || string(b[from:from+len(form)]) != form {
				continue
			}
			if ref, err := blobref.ParseHex(string(b[from+len(form) : to])); err == nil {
				if _, known := f.found[ref]; !known {
					f.order = append(f.order, ref)
				}
				f.found[ref] = f.found[ref] || form == cited
			}
		}
		at += len(pattern)
	}
}
