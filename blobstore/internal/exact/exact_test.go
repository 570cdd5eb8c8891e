package exact_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/exact"
)

func TestTheLastBytesOfAStreamAreHandedOutWhenAllOfItIsRight(t *testing.T) {
	data := bytes.Repeat([]byte("stream "), 1000)
	broken := errors.New("the line is dead")
	for name, tt := range map[string]struct {
		r    io.Reader
		size int
		want blobref.Ref
		err  error
	}{
		"as it should be":        {bytes.NewReader(data), len(data), blobref.Of(data), nil},
		"a byte at a time":       {iotest.OneByteReader(bytes.NewReader(data)), len(data), blobref.Of(data), nil},
		"with an end in advance": {iotest.DataErrReader(bytes.NewReader(data)), len(data), blobref.Of(data), nil},
		"of any hash":            {bytes.NewReader(data), len(data), blobref.Ref{}, nil},
		"longer":                 {bytes.NewReader(data), len(data) - 1, blobref.Ref{}, exact.ErrLonger},
		"longer than its hash":   {bytes.NewReader(data), len(data) - 1, blobref.Of(data[:len(data)-1]), exact.ErrLonger},
		"shorter":                {bytes.NewReader(data), len(data) + 1, blobref.Ref{}, exact.ErrShorter},
		"of another hash":        {bytes.NewReader(data), len(data), blobref.Of(nil), blobstore.ErrMismatch},
		"broken":                 {io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), len(data) + 1, blobref.Ref{}, broken},
		"broken behind its end":  {io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), len(data), blobref.Ref{}, broken},
	} {
		got, err := io.ReadAll(exact.New(tt.r, int64(tt.size), tt.want))
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", name, err, tt.err)
		}
		if whole := len(got) >= tt.size; whole != (tt.err == nil) || whole && !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes were handed out of %d", name, len(got), tt.size)
		}
	}
}
