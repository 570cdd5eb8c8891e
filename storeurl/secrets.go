package storeurl

import (
	"os"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/kv/kvhttp"
)

// variable is one of the environment, "" where it is not set.
func (o Options) variable(name string) string {
	if o.Lookup == nil {
		return os.Getenv(name)
	}
	value, _ := o.Lookup(name)
	return value
}

// token is the bearer token for a server, "" for none.
func (o Options) token(u URL) (string, error) {
	if o.Token != nil {
		return o.Token(u.Kind, u.Place)
	}
	lookup := o.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	if u.Kind == KV {
		return kvhttp.TokenFrom(lookup)
	}
	return httpstore.TokenFrom(lookup)
}

// credentials are those that variables say, nil where they say none: the usual files have them then.
func (o Options) credentials() *credentials.Credentials {
	for _, names := range [][3]string{
		{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
		{"AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN"},
		{"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"},
	} {
		id, secret, session := o.variable(names[0]), o.variable(names[1]), ""
		if names[2] != "" {
			session = o.variable(names[2])
		}
		if id != "" && secret != "" {
			return credentials.NewStaticV4(id, secret, session)
		}
	}
	return nil
}
