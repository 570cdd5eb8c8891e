// Package conversation_test measures how sessions become conversation states and how
// these are read.
//
//	go test -run '^$' -bench . ./bench/conversation
//
// The session has 10,000 entries: 2,000 turns with a call of a tool and its result.
package conversation_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
)

const header = `{"type":"session","version":3,"id":"0199a0a0-0000-7000-8000-000000000000","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/home/someone/project"}` + "\n"

// turns are the lines of some turns, five entries each, behind the entry parent.
func turns(from, n int, parent string) ([]byte, string) {
	var b bytes.Buffer
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	add := func(i, k int, message string) {
		id := fmt.Sprintf("%020x%04x", i, k)
		p := "null"
		if parent != "" {
			p = `"` + parent + `"`
		}
		fmt.Fprintf(&b, `{"type":"message","id":"%s","parentId":%s,"timestamp":"%s","message":%s}`+"\n", id, p, at.Add(time.Duration(i*5+k)*time.Second).Format("2006-01-02T15:04:05.000Z"), message)
		parent = id
	}
	output := string(bytes.Repeat([]byte("total 48 drwxr-xr-x 2 root root 4096 file.go\\n"), 16))
	for i := from; i < from+n; i++ {
		add(i, 0, fmt.Sprintf(`{"role":"user","content":"Look at file %d and say what is wrong with it.","timestamp":1}`, i))
		add(i, 1, fmt.Sprintf(`{"role":"assistant","content":[{"type":"thinking","thinking":"The user wants me to look at file %d."},{"type":"text","text":"I look."},{"type":"toolCall","id":"call_%d","name":"bash","arguments":{"command":"ls -l %d"}}],"api":"x","provider":"p","model":"m","usage":{"input":1200,"output":80,"cacheRead":0,"cacheWrite":0,"totalTokens":1280,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"toolUse","timestamp":1}`, i, i, i))
		add(i, 2, fmt.Sprintf(`{"role":"toolResult","toolCallId":"call_%d","toolName":"bash","content":[{"type":"text","text":"%s"}],"isError":false,"timestamp":1}`, i, output))
		add(i, 3, fmt.Sprintf(`{"role":"assistant","content":[{"type":"toolCall","id":"read_%d","name":"read","arguments":{"path":"src/%d.go"}}],"api":"x","provider":"p","model":"m","usage":{"input":1300,"output":40,"cacheRead":0,"cacheWrite":0,"totalTokens":1340,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"toolUse","timestamp":1}`, i, i))
		add(i, 4, fmt.Sprintf(`{"role":"toolResult","toolCallId":"read_%d","toolName":"read","content":[{"type":"text","text":"package main\n\nfunc main() {}\n"}],"isError":false,"timestamp":1}`, i))
	}
	return b.Bytes(), parent
}

func logOf(b []byte) conversation.Log {
	return conversation.Log{ReaderAt: bytes.NewReader(b), Size: int64(len(b))}
}

func project(b *testing.B, store blobstore.Store, data []byte) conversation.Projection {
	p, err := conversation.NewProjector(store, conversation.ProjectorOptions{}).Project(b.Context(), logOf(data))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// median runs do as long as b asks for it and reports the median against the limit, in
// milliseconds.
func median(b *testing.B, limit float64, do func() time.Duration) {
	var took []time.Duration
	for b.Loop() {
		took = append(took, do())
	}
	slices.Sort(took)
	ms := float64(took[len(took)/2].Microseconds()) / 1000
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms, "ms-median")
	if limit > 0 {
		b.ReportMetric(limit, "ms-limit")
	}
}

func BenchmarkProject10000Memory(b *testing.B) {
	data, _ := turns(0, 2000, "")
	data = append([]byte(header), data...)
	var n conversation.Projection
	median(b, 100, func() time.Duration {
		store := memory.New(blobstore.Verified)
		start := time.Now()
		n = project(b, store, data)
		return time.Since(start)
	})
	b.ReportMetric(float64(n.Blobs), "blobs")
	b.ReportMetric(float64(len(data))/1e6, "MB-log")
}

// BenchmarkPutOfTheSameBlobs is the opponent: the blobs of such a projection, hashed and
// put into an empty store one by one, with nothing read and nothing made.
func BenchmarkPutOfTheSameBlobs(b *testing.B) {
	data, _ := turns(0, 2000, "")
	from := memory.New(blobstore.Verified)
	project(b, from, append([]byte(header), data...))
	var blobs [][]byte
	for info, err := range from.Walk(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
		blob, err := from.Get(b.Context(), info.Ref)
		if err != nil {
			b.Fatal(err)
		}
		blobs = append(blobs, blob)
	}
	median(b, 0, func() time.Duration {
		store := memory.New(blobstore.Verified)
		start := time.Now()
		for _, blob := range blobs {
			if err := store.Set(context.Background(), blobref.Of(blob), blob); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	})
}

func BenchmarkProject10000Localdir(b *testing.B) {
	data, _ := turns(0, 2000, "")
	data = append([]byte(header), data...)
	median(b, 0, func() time.Duration {
		store, err := localdir.Open(b.TempDir(), localdir.Options{})
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		project(b, store, data)
		return time.Since(start)
	})
}

func BenchmarkOneMoreTurn(b *testing.B) {
	all, _ := turns(0, 22000, "")
	all = append([]byte(header), all...)
	ends := []int{len(header)}
	for i, n := len(header), 0; i < len(all); i++ {
		if all[i] == '\n' {
			if n++; n%5 == 0 {
				ends = append(ends, i+1)
			}
		}
	}
	store := memory.New(blobstore.Verified)
	p := conversation.NewProjector(store, conversation.ProjectorOptions{})
	at := 2000
	var blobs int
	median(b, 1, func() time.Duration {
		if at == 2000 || at+1 == len(ends) { // never far from 10,000 entries
			p, at = conversation.NewProjector(store, conversation.ProjectorOptions{}), 2000
			if _, err := p.Project(b.Context(), logOf(all[:ends[at]])); err != nil {
				b.Fatal(err)
			}
		}
		at++
		if at > 2200 {
			defer func() { at = 2000 }()
		}
		start := time.Now()
		got, err := p.Project(b.Context(), logOf(all[:ends[at]]))
		if err != nil {
			b.Fatal(err)
		}
		blobs = got.Blobs
		return time.Since(start)
	})
	b.ReportMetric(float64(blobs), "blobs")
}

func BenchmarkHydrateLastTurn10000(b *testing.B) {
	data, _ := turns(0, 2000, "")
	store := memory.New(blobstore.Verified)
	root := project(b, store, append([]byte(header), data...)).Root
	median(b, 50, func() time.Duration {
		start := time.Now()
		s, err := conversation.Load(b.Context(), store, root, conversation.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		t, err := s.Turn(b.Context(), s.Len()-1)
		if err != nil || len(t.Holes) > 0 {
			b.Fatal(err, t)
		}
		return time.Since(start)
	})
}
