package httpstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// get answers GET and HEAD.
func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	ref, err := blob(r)
	if err != nil {
		return err
	}
	info, err := blobstore.Stat(r.Context(), h.store, ref)
	known := err == nil
	if err != nil && !errors.Is(err, blobstore.ErrUnsupported) {
		return err
	}
	if r.Method == http.MethodHead && known {
		h.describe(w, ref, info)
		return nil
	}
	_, streams := h.store.(blobstore.Opener)
	if streams && (!known || info.Size > small) {
		return h.stream(w, r, ref, info)
	}
	reserved := info.Size
	if !known {
		reserved = h.opts.MaxBodyBytes
	}
	free, err := h.reserve(r.Context(), reserved)
	if err != nil {
		return err
	}
	defer free()
	data, err := h.store.Get(r.Context(), ref)
	if err != nil {
		return err
	}
	w.Header().Set(digestHeader, digest(sha256.Sum256(data)))
	if r.Header.Get("Range") != "" {
		w.Header().Del(digestHeader) // it is of what is sent
	}
	h.content(w, r, ref, info, bytes.NewReader(data))
	return nil
}

// stream answers with a blob that is not held in memory.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, ref blobref.Ref, info blobstore.Info) error {
	b, err := h.store.(blobstore.Opener).Open(r.Context(), ref)
	if err != nil {
		return err
	}
	defer b.Close()
	if h.mode == blobstore.Verified && r.Header.Get("Range") == "" {
		w.Header().Set(digestHeader, digest(ref.Sum()))
	}
	h.content(w, r, ref, info, b)
	return nil
}

func (h *Handler) content(w http.ResponseWriter, r *http.Request, ref blobref.Ref, info blobstore.Info, content io.ReadSeeker) {
	h.head(w, ref)
	http.ServeContent(w, r, "", info.ModTime, content)
}

// head says what is the same of all answers with a blob.
func (h *Handler) head(w http.ResponseWriter, ref blobref.Ref) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if h.mode == blobstore.Verified {
		w.Header().Set("Etag", `"`+ref.Hex()+`"`)
	}
}

func (h *Handler) describe(w http.ResponseWriter, ref blobref.Ref, info blobstore.Info) {
	h.head(w, ref)
	w.Header().Set("Content-Length", fmt.Sprint(info.Size))
	w.Header().Set("Accept-Ranges", "bytes")
	if !info.ModTime.IsZero() {
		w.Header().Set("Last-Modified", info.ModTime.UTC().Format(http.TimeFormat))
	}
}

// put stores the body under the name in the URL.
func (h *Handler) put(w http.ResponseWriter, r *http.Request) error {
	ref, err := blob(r)
	if err != nil {
		return err
	}
	absent, err := onlyIfAbsent(r)
	if err != nil {
		return err
	}
	if absent {
		// Before the body is sent, which may be for nothing.
		if there, err := h.has(r.Context(), ref); err != nil || there {
			return errors.Join(err, onlyIf(there, errExists))
		}
	}
	if _, streams := h.store.(blobstore.Putter); streams && h.mode == blobstore.Verified && !absent && (r.ContentLength < 0 || r.ContentLength > small) {
		if err := h.putStream(r, ref); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if setter, ok := h.store.(blobstore.StreamSetter); ok && h.mode == blobstore.Opaque && !absent && r.ContentLength > small {
		if r.ContentLength > h.opts.MaxStreamBytes {
			return fmt.Errorf("%w: the limit is %d bytes", blobstore.ErrTooLarge, h.opts.MaxStreamBytes)
		}
		body := &proving{r: r.Body, hash: sha256.New(), digest: r.Header.Get(digestHeader)}
		if err := setter.SetStream(r.Context(), ref, body, r.ContentLength); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	data, free, err := h.body(w, r)
	if err != nil {
		return err
	}
	defer free()
	if h.mode == blobstore.Verified && !ref.Verify(data) {
		return fmt.Errorf("storing %s: %w (they are %s)", ref, blobstore.ErrMismatch, blobref.Of(data))
	}
	if err := h.set(r.Context(), ref, data, absent); err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

// set stores data, if it shall be so only where nothing is.
func (h *Handler) set(ctx context.Context, ref blobref.Ref, data []byte, absent bool) error {
	sum := ref.Sum()
	mu := &h.writing[sum[0]]
	mu.Lock()
	defer mu.Unlock()
	if absent {
		if there, err := h.has(ctx, ref); err != nil || there {
			return errors.Join(err, onlyIf(there, errExists))
		}
	}
	return h.store.Set(ctx, ref, data)
}

func onlyIf(cond bool, err error) error {
	if cond {
		return err
	}
	return nil
}

// has reports whether there is a blob of that name, whatever its bytes are.
func (h *Handler) has(ctx context.Context, ref blobref.Ref) (bool, error) {
	_, err := blobstore.Stat(ctx, h.store, ref)
	if errors.Is(err, blobstore.ErrUnsupported) {
		_, err = h.store.Get(ctx, ref)
	}
	switch {
	case err == nil, errors.Is(err, blobstore.ErrCorrupt), errors.Is(err, blobstore.ErrTooLarge):
		return true, nil
	case errors.Is(err, blobstore.ErrNotFound):
		return false, nil
	}
	return false, err
}

// onlyIfAbsent reads the condition of a put.
func onlyIfAbsent(r *http.Request) (bool, error) {
	for _, name := range []string{"If-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if r.Header.Get(name) != "" {
			return false, errHeader
		}
	}
	switch r.Header.Get("If-None-Match") {
	case "":
		return false, nil
	case "*":
		return true, nil
	}
	return false, errHeader
}

// aheadOfMemory is how much of a body is read before memory is taken for all of it, so that
// one who claims much and sends nothing takes none from others.
const aheadOfMemory = 64 << 10

// body reads a body into memory, which free gives back.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) (_ []byte, free func(), err error) {
	if r.ContentLength > h.opts.MaxBodyBytes {
		return nil, nil, h.bodyTooLarge()
	}
	body := http.MaxBytesReader(w, r.Body, h.opts.MaxBodyBytes)
	var buf bytes.Buffer
	buf.Grow(bytes.MinRead) // an empty body is not nil
	n, err := io.CopyN(&buf, body, aheadOfMemory)
	if err != nil && err != io.EOF {
		return nil, nil, tooLarge(err)
	}
	free = func() {}
	if err == nil {
		// All at once: of many who hold a part and wait for more, none would end.
		reserved := r.ContentLength
		if reserved < 0 {
			reserved = h.opts.MaxBodyBytes
		}
		if free, err = h.reserve(r.Context(), reserved-n); err != nil {
			return nil, nil, err
		}
		if _, err := buf.ReadFrom(body); err != nil {
			free()
			return nil, nil, tooLarge(err)
		}
	}
	if !agrees(r.Header.Get(digestHeader), sha256.Sum256(buf.Bytes())) {
		free()
		return nil, nil, errDigest
	}
	return buf.Bytes(), free, nil
}

// tooLarge makes the error of a body over its limit one of a store.
func tooLarge(err error) error {
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return fmt.Errorf("%w: the limit is %d bytes", blobstore.ErrTooLarge, over.Limit)
	}
	return err
}

// putStream stores a long body of a verified store as a stream that fails when it turns
// out to be another blob: nothing is stored then.
func (h *Handler) putStream(r *http.Request, ref blobref.Ref) error {
	if r.ContentLength > h.opts.MaxStreamBytes {
		return fmt.Errorf("%w: the limit is %d bytes", blobstore.ErrTooLarge, h.opts.MaxStreamBytes)
	}
	body := &proving{r: http.MaxBytesReader(nil, r.Body, h.opts.MaxStreamBytes), hash: sha256.New(), digest: r.Header.Get(digestHeader), want: ref}
	_, _, err := h.store.(blobstore.Putter).Put(r.Context(), body)
	return tooLarge(err)
}

// proving is a body that ends with an error unless it is what it should be.
type proving struct {
	r      io.Reader
	hash   hash.Hash
	digest string      // a Content-Digest, if there is one
	want   blobref.Ref // the zero Ref for any
}

func (p *proving) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.hash.Write(b[:n])
	if err != io.EOF {
		return n, err
	}
	sum := [sha256.Size]byte(p.hash.Sum(nil))
	switch got := blobref.FromSum(sum); {
	case !agrees(p.digest, sum):
		return n, errDigest
	case !p.want.IsZero() && got != p.want:
		return n, fmt.Errorf("storing %s: %w (they are %s)", p.want, blobstore.ErrMismatch, got)
	}
	return n, io.EOF
}

// post stores a body under its own hash.
func (h *Handler) post(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength > h.opts.MaxStreamBytes {
		return fmt.Errorf("%w: the limit is %d bytes", blobstore.ErrTooLarge, h.opts.MaxStreamBytes)
	}
	var (
		ref  blobref.Ref
		size int64
		err  error
	)
	if putter, ok := h.store.(blobstore.Putter); ok {
		body := &proving{r: http.MaxBytesReader(nil, r.Body, h.opts.MaxStreamBytes), hash: sha256.New(), digest: r.Header.Get(digestHeader)}
		ref, size, err = putter.Put(r.Context(), body)
	} else {
		var data []byte
		var free func()
		if data, free, err = h.body(w, r); err != nil {
			return err
		}
		defer free()
		size = int64(len(data))
		ref, err = blobstore.Put(r.Context(), h.store, data)
	}
	if err != nil {
		return tooLarge(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(struct {
		Ref  string `json:"ref"`
		Size int64  `json:"size"`
	}{ref.Hex(), size})
	return nil
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request) error {
	ref, err := blob(r)
	if err != nil {
		return err
	}
	if err := blobstore.Delete(r.Context(), h.store, ref); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// NewServer returns a server for a handler with the time limits that a connection has
// besides those of the handler. The caller gives it an address or a listener, and TLS.
func NewServer(h *Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: h.opts.Grace,
		IdleTimeout:       max(2*time.Minute, h.opts.Grace),
		MaxHeaderBytes:    32 << 10,
	}
}
