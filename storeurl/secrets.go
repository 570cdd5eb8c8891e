package storeurl

import (
	"os"

	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/internal/s3"
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
func (o Options) credentials() *s3store.Credentials {
	c := s3store.Credentials(s3.FromEnvironment(o.variable))
	if c == (s3store.Credentials{}) {
		return nil
	}
	return &c
}
