package withhold

import "strings"

// Name reports whether the name of a variable looks like that of a secret. Case does not matter. The words of a name
// are what stands between its underscores.
//
//   - A word is SECRET, SECRETS, PASSWORD, PASSWD, PASSPHRASE, CREDENTIAL, CREDENTIALS or APIKEY, wherever it stands.
//   - The last word ends in TOKEN, PASSWORD, PASSWD, PASSPHRASE, SECRET, APIKEY, SECRETKEY, ACCESSKEY, PRIVATEKEY or JWT
//     (GITHUB_TOKEN, PGPASSWORD), or is PASS, AUTH, PAT, KEY or KEYS behind another one (DB_PASS, NPM_CONFIG__AUTH,
//     OPENAI_API_KEY).
//   - The name is MYSQL_PWD, SSHPASS, LDAPPASS, DBPASS or DOCKER_AUTH_CONFIG.
//
// Not so where the last word says that the value is a place or a number: FILE, PATH, DIR, URL, URI, SOCK, SOCKET,
// PROGRAM, COMMAND, CMD, HELPER, NAME, ID, TTL, LENGTH, TIMEOUT, EXPIRY, TYPE, and for names that end in PUBLIC_KEY or are
// GOOGLE_APPLICATION_CREDENTIALS (a path). AWS_ACCESS_KEY_ID goes with the key that it is of, and is withheld.
func Name(name string) bool {
	name = strings.ToUpper(name)
	switch name {
	case "MYSQL_PWD", "SSHPASS", "LDAPPASS", "DBPASS", "DOCKER_AUTH_CONFIG", "AWS_ACCESS_KEY_ID":
		return true
	case "GOOGLE_APPLICATION_CREDENTIALS":
		return false
	}
	if strings.HasSuffix(name, "PUBLIC_KEY") {
		return false
	}
	words := strings.FieldsFunc(name, func(r rune) bool { return r == '_' })
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if harmless[last] {
		return false
	}
	for _, end := range endings {
		if strings.HasSuffix(last, end) {
			return true
		}
	}
	if behind[last] && len(words) > 1 {
		return true
	}
	for _, w := range words {
		if anywhere[w] {
			return true
		}
	}
	return false
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

var (
	anywhere = set("SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY")
	behind   = set("PASS", "AUTH", "PAT", "KEY", "KEYS")
	harmless = set("FILE", "PATH", "DIR", "URL", "URI", "SOCK", "SOCKET", "PROGRAM", "COMMAND", "CMD", "HELPER", "NAME", "ID",
		"TTL", "LENGTH", "TIMEOUT", "EXPIRY", "TYPE")
	endings = []string{"TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "APIKEY", "SECRETKEY", "ACCESSKEY", "PRIVATEKEY", "JWT"}
)

// Split divides an environment (KEY=VALUE each) into what commands may see and what is withheld. Neither shares memory
// with environ; the order stays.
func Split(environ []string) (pass, withheld []string) {
	pass = make([]string, 0, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok && v != "" && Name(k) {
			withheld = append(withheld, kv)
		} else {
			pass = append(pass, kv)
		}
	}
	return pass, withheld
}
