package s3store_test

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/internal/s3test"
)

// names have what is escaped in different ways.
var names = []string{"!'()*~", "$&@=:;,", "?x=y#z", "a b+c", "a%2Fb", "a/b.c/-_", "{}[]^|\"<>`"}

func TestAnotherClientSeesTheSameObjects(t *testing.T) {
	server := s3test.Start(t)
	ours, err := s3store.OpenObjects(s3store.Options{Endpoint: server.Endpoint, Bucket: server.Bucket, Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	theirs, err := minio.New(strings.TrimPrefix(server.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""), Region: "us-east-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		data := []byte(name)
		if i%2 == 0 {
			if _, err := ours.PutIfAbsent(t.Context(), name, data); err != nil {
				t.Fatal(err)
			}
		} else if _, err := theirs.PutObject(t.Context(), server.Bucket, "p/"+name, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		mine, version, err := ours.Get(t.Context(), name)
		if err != nil || !bytes.Equal(mine, data) {
			t.Errorf("we get %q of %s, %v", mine, name, err)
		}
		object, err := theirs.GetObject(t.Context(), server.Bucket, "p/"+name, minio.GetObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		yours, err := io.ReadAll(object)
		if err != nil || !bytes.Equal(yours, data) {
			t.Errorf("they get %q of %s, %v", yours, name, err)
		}
		if info, err := object.Stat(); err != nil || (info.ETag == "") != version.IsZero() {
			t.Errorf("they have %+v of %s, %v", info, name, err)
		}
		object.Close()
	}
	var listed []string
	for name, err := range ours.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, name)
	}
	if !slices.Equal(listed, names) {
		t.Errorf("we list %q, want %q", listed, names)
	}
	for i, name := range names {
		if i%2 == 0 {
			err = theirs.RemoveObject(t.Context(), server.Bucket, "p/"+name, minio.RemoveObjectOptions{})
		} else {
			err = ours.Delete(t.Context(), name)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for name, err := range ours.List(t.Context(), "") {
		t.Errorf("%s is left, %v", name, err)
	}
}
