package storeurl

import (
	"fmt"
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
	if u.Kind == KV {
		return checked(kvhttp.TokenEnv, o.variable(kvhttp.TokenEnv))
	}
	if token := o.variable(httpstore.TokenEnv); token != "" {
		return checked(httpstore.TokenEnv, token)
	}
	if name := o.variable(httpstore.TokenFileEnv); name != "" {
		return httpstore.TokenFromFile(name)
	}
	return "", nil
}

// checked refuses a token that cannot stand in a header, without showing it.
func checked(name, token string) (string, error) {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("the token in %s has a character that cannot be sent: it has to be one word of ASCII", name)
		}
	}
	return token, nil
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
