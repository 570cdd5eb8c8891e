package withhold

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamesThatLookLikeSecretsAreTheDocumentedOnes(t *testing.T) {
	for name, want := range map[string]bool{
		"OPENAI_API_KEY": true, "ANTHROPIC_API_KEY": true, "AWS_SECRET_ACCESS_KEY": true, "AWS_SESSION_TOKEN": true,
		"AWS_ACCESS_KEY_ID": true, "GITHUB_TOKEN": true, "GH_PAT": true, "npm_config__auth": true, "PGPASSWORD": true,
		"MYSQL_PWD": true, "DB_PASS": true, "SECRET_KEY_BASE": true, "STRIPE_SECRET": true, "RESTIC_PASSWORD": true,
		"SSHPASS": true, "SSH_PASSPHRASE": true, "SLACK_CREDENTIALS": true, "OPENAI_APIKEY": true, "TOKEN": true, "my_token": true,
		"SECRETS": true, "ENCRYPTION_KEYS": true, "SECRETKEY": true, "MINIO_ACCESSKEY": true, "JWT": true, "DBPASS": true,

		"PATH": false, "HOME": false, "PWD": false, "OLDPWD": false, "KEY": false, "PASS": false, "SSH_AUTH_SOCK": false, "XAUTHORITY": false,
		"GPG_TTY": false, "SSH_ASKPASS": false, "GIT_ASKPASS": false, "RESTIC_PASSWORD_FILE": false, "AWS_WEB_IDENTITY_TOKEN_FILE": false,
		"GOOGLE_APPLICATION_CREDENTIALS": false, "MAX_OUTPUT_TOKENS": false, "TOKENIZERS_PARALLELISM": false, "SIGNING_PUBLIC_KEY": false,
		"KEYBOARD_LAYOUT": false, "MONKEY": false, "COMPASS": false, "SECRETS_DIR": false, "AUTHOR": false, "": false, "_": false,
	} {
		if got := Name(name); got != want {
			t.Errorf("Name(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestAVariableWithoutAValueIsNotWithheld(t *testing.T) {
	pass, withheld := Split([]string{"A=1", "X_TOKEN=", "X_TOKEN=abc", "odd", "B=2"})
	if diff := cmp.Diff([]string{"A=1", "X_TOKEN=", "odd", "B=2"}, pass); diff != "" {
		t.Errorf("what passes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"X_TOKEN=abc"}, withheld); diff != "" {
		t.Errorf("what is withheld (-want +got):\n%s", diff)
	}
}

// reporter makes the test binary a program that withholds and tells what it has.
const reporter = "WITHHOLD_TEST_REPORT"

func TestMain(m *testing.M) {
	if os.Getenv(reporter) == "" {
		os.Exit(m.Run())
	}
	if err := Main(); err != nil {
		os.Stdout.WriteString("error: " + err.Error() + "\n")
		os.Exit(1)
	}
	report()
}

func report() {
	environ, _ := os.ReadFile("/proc/self/environ")
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.Contains(to, "memfd:withheld") {
			os.Stdout.WriteString("open: " + f.Name() + "\n")
		}
	}
	if bytes.Contains(environ, []byte("s3cr3t")) {
		os.Stdout.WriteString("in /proc\n")
	}
	if os.Getenv("X_TOKEN") != "" {
		os.Stdout.WriteString("in the environment\n")
	}
	if _, ok := os.LookupEnv(fileEnv); ok {
		os.Stdout.WriteString("the mark is there\n")
	}
	v, _ := Lookup("X_TOKEN")
	os.Stdout.WriteString("looked up: " + v + "\n" + "names: " + strings.Join(Names(), " ") + "\n" + "args: " + strings.Join(os.Args[1:], " ") + "\n")
	Forget()
	if v, ok := Lookup("X_TOKEN"); ok && v != "" {
		os.Stdout.WriteString("not forgotten\n")
	}
}

func run(t *testing.T, env ...string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "one", "two words")
	// A program that counts what is covered would tell on its standard error that it has nowhere to write that.
	cmd.Env = append([]string{reporter + "=1", "PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + t.TempDir()}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestTheProgramIsExecutedAnewWithoutSecretsAndStillKnowsThem(t *testing.T) {
	got := run(t, "X_TOKEN=s3cr3t=with=signs", "Y_API_KEY=s3cr3t two\nlines", "Z=1")
	want := "looked up: s3cr3t=with=signs\nnames: X_TOKEN Y_API_KEY\nargs: one two words\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestAMarkThatSomebodyElseSetIsIgnored(t *testing.T) {
	for _, mark := range []string{"0", "1", "2", "9", "-1", "x", ""} {
		got := run(t, fileEnv+"="+mark, "X_TOKEN=s3cr3t")
		if want := "looked up: s3cr3t\nnames: X_TOKEN\nargs: one two words\n"; got != want {
			t.Errorf("mark %q: got:\n%s\nwant:\n%s", mark, got, want)
		}
	}
}

func TestWithoutSecretsNothingIsExecutedAnew(t *testing.T) {
	if got, want := run(t, "Z=1"), "looked up: \nnames: \nargs: one two words\n"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestEnvironLeavesSecretsOutInAProgramThatWasNotExecutedAnew(t *testing.T) {
	t.Setenv("X_TOKEN", "s3cr3t")
	if slices.Contains(Environ(), "X_TOKEN=s3cr3t") {
		t.Error("Environ has the secret")
	}
	if !slices.Contains(Values(), "s3cr3t") {
		t.Error("Values does not know it")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x00A=1\x00B=\xff\n"))
	f.Add([]byte(magic + "\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole := slices.Clone(data)
		vars, err := parse(data)
		if err != nil {
			return
		}
		if again := append([]byte(magic), joined(vars)...); !bytes.Equal(again, whole) {
			t.Errorf("%q became %q", whole, again)
		}
	})
}

func joined(vars [][]byte) (b []byte) {
	for _, v := range vars {
		b = append(append(b, 0), v...)
	}
	return b
}
