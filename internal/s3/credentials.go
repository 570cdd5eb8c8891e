package s3

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxProfiles bounds a file of profiles.
const maxProfiles = 1 << 20

// FromEnvironment returns the credentials that variables tell, the zero Credentials where they tell none.
func FromEnvironment(variable func(name string) string) Credentials {
	for _, names := range [][3]string{
		{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
		{"AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN"},
		{"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", ""},
	} {
		c := Credentials{AccessKeyID: variable(names[0]), SecretAccessKey: variable(names[1])}
		if names[2] != "" {
			c.SessionToken = variable(names[2])
		}
		if !c.IsZero() {
			return c
		}
	}
	return Credentials{}
}

// FromFiles returns the credentials of the profile that AWS_PROFILE names, else of the one called default: those of
// ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE), else those of ~/.aws/config (AWS_CONFIG_FILE). It returns the zero
// Credentials where there is no such file, and where it has no such profile and nobody asked for it. Keys that a profile has
// somebody else make (sso, roles, credential_process) are not asked for: the error says what to do.
func FromFiles(variable func(name string) string) (Credentials, error) {
	wanted := variable("AWS_PROFILE")
	profile := wanted
	if profile == "" {
		profile = "default"
	}
	inConfig := profile
	if profile != "default" {
		inConfig = "profile " + profile
	}
	made := ""
	for _, file := range [][3]string{
		{"AWS_SHARED_CREDENTIALS_FILE", "credentials", profile},
		{"AWS_CONFIG_FILE", "config", inConfig},
	} {
		name, section := variable(file[0]), file[2]
		if name == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				continue
			}
			name = filepath.Join(home, ".aws", file[1])
		}
		values, err := readProfile(name, section)
		if err != nil {
			return Credentials{}, err
		}
		c := Credentials{AccessKeyID: values["aws_access_key_id"], SecretAccessKey: values["aws_secret_access_key"], SessionToken: values["aws_session_token"]}
		if !c.IsZero() {
			return c, nil
		}
		for _, how := range []string{"aws_access_key_id", "aws_secret_access_key", "sso_role_name", "sso_session", "role_arn", "credential_process"} {
			if values[how] != "" && made == "" {
				made = how
			}
		}
	}
	switch {
	case made != "":
		return Credentials{}, fmt.Errorf("the profile %q has %s, and not both keys: set the variables that aws configure export-credentials --profile %[1]s --format env prints", profile, made)
	case wanted != "":
		return Credentials{}, fmt.Errorf("there are no keys for the profile %q that AWS_PROFILE names: write them into ~/.aws/credentials, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", wanted)
	}
	return Credentials{}, nil
}

// readProfile reads the values of a section, none where there is no file. What is in it is in no error.
func readProfile(name, section string) (map[string]string, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the credentials: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxProfiles+1))
	if err != nil {
		return nil, fmt.Errorf("reading the credentials: %w", err)
	}
	if len(data) > maxProfiles {
		return nil, fmt.Errorf("reading the credentials: %s has more than %d bytes", name, maxProfiles)
	}
	return parseProfile(data, section), nil
}

// parseProfile is the values of a section: lines NAME = VALUE behind [SECTION]. Of a name that comes twice the last counts;
// lines that are indented belong to a value above and are passed over, as are comments, which begin with # or ;.
func parseProfile(data []byte, section string) map[string]string {
	values := map[string]string{}
	in := false
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxProfiles+1)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), " \t\r")
		switch {
		case line == "", strings.IndexByte("#; \t", line[0]) >= 0:
		case line[0] == '[':
			title, _, _ := strings.Cut(line[1:], "]")
			in = strings.Join(strings.Fields(title), " ") == section
		case in:
			if name, value, ok := strings.Cut(line, "="); ok {
				values[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
			}
		}
	}
	return values
}
