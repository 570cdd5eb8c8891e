package s3

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCredentialsAreFoundWhereTheyAreKept(t *testing.T) {
	const keys = "aws_access_key_id = ID\naws_secret_access_key=hidden=/+\n"
	const config = "[default]\nregion = x\n[profile lent]\naws_access_key_id=LENT\naws_secret_access_key=hidden\naws_session_token=token\n" +
		"[profile sso]\nsso_role_name = role\n[profile made]\ncredential_process = /bin/false\n"
	for name, tt := range map[string]struct {
		file, profile string
		want          Credentials
		refused       string
	}{
		"in the default profile":         {"; hers\n[default]\n# comment\n" + keys, "", Credentials{"ID", "hidden=/+", ""}, ""},
		"in a profile that is named":     {"[default]\naws_access_key_id = other\n[ my  own ]\r\n" + keys, "my own", Credentials{"ID", "hidden=/+", ""}, ""},
		"in the other file":              {"[default]\n" + keys, "lent", Credentials{"LENT", "hidden", "token"}, ""},
		"nowhere":                        {"", "", Credentials{}, ""},
		"in another profile":             {"[other]\n" + keys, "", Credentials{}, ""},
		"in no profile of that name":     {"[default]\n" + keys, "missing", Credentials{}, "AWS_PROFILE"},
		"with half of them":              {"[default]\naws_secret_access_key = hidden\n", "", Credentials{}, "aws_secret_access_key"},
		"where a role has to be asked":   {"", "sso", Credentials{}, "export-credentials"},
		"where a program has to be run":  {"", "made", Credentials{}, "credential_process"},
		"under a value that is indented": {"[default]\ns3 =\n  aws_access_key_id = other\n" + keys, "", Credentials{"ID", "hidden=/+", ""}, ""},
		"in a file that is too large":    {strings.Repeat("#\n", maxProfiles), "", Credentials{}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("HOME", dir)
			for file, text := range map[string]string{"credentials": tt.file, "config": config} {
				if err := os.MkdirAll(filepath.Join(dir, ".aws"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, ".aws", file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := FromFiles(func(name string) string { return map[string]string{"AWS_PROFILE": tt.profile}[name] })
			switch {
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "hidden")):
				t.Errorf("%v, want an error with %q", err, tt.refused)
			case tt.refused == "" && (err != nil || got != tt.want):
				t.Errorf("%#v, %v; want %#v", got, err, tt.want)
			}
		})
	}
}

func TestVariablesSayWhoAsks(t *testing.T) {
	for name, tt := range map[string]struct {
		set  map[string]string
		want Credentials
	}{
		"none":                    {nil, Credentials{}},
		"those of Amazon":         {map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c", "MINIO_ROOT_USER": "d", "MINIO_ROOT_PASSWORD": "e"}, Credentials{"a", "b", "c"}},
		"their old names":         {map[string]string{"AWS_ACCESS_KEY": "a", "AWS_SECRET_KEY": "b"}, Credentials{"a", "b", ""}},
		"those of MinIO":          {map[string]string{"AWS_ACCESS_KEY_ID": "half", "MINIO_ROOT_USER": "d", "MINIO_ROOT_PASSWORD": "e", "AWS_SESSION_TOKEN": "c"}, Credentials{"d", "e", ""}},
		"a key without its other": {map[string]string{"AWS_ACCESS_KEY_ID": "half"}, Credentials{}},
	} {
		if got := FromEnvironment(func(name string) string { return tt.set[name] }); got != tt.want {
			t.Errorf("%s: %#v, want %#v", name, got, tt.want)
		}
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add([]byte("[default]\na = b\n"), "default")
	f.Add([]byte("[default\n=\n[]\n=b\n"), "")
	f.Fuzz(func(t *testing.T, data []byte, section string) {
		for name, value := range parseProfile(data, section) {
			if strings.ContainsAny(name+value, "\n") || len(name)+len(value) > 3*len(data) {
				t.Errorf("%q = %q", name, value)
			}
		}
	})
}
