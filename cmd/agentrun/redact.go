package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/redact/gitleaks"
	"github.com/agentrun/agentrun/redact/vault"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/supervisor"
)

// addRedact adds the flag --redact.
func (e *environment) addRedact(f *pflag.FlagSet) {
	f.Var(&e.redact, "redact", "replace secrets in what is kept, and show that: `MODE`: off, on, reversible (default $AGENTRUN_REDACT, else redact.mode of config.json, else off)")
}

// redaction is what is to be replaced in a session: as the flag says, else the variable, else the settings. It is nil for nothing.
func (e *environment) redaction(s *session.Session) (*supervisor.Redaction, error) {
	set, _, _ := config.Load(nil, s.Home()) // where it can not be read, the guard of the quotas lets nothing be kept
	mode := e.redact
	if mode == "" {
		mode = set.Redact.Mode
	}
	if !mode.Active() {
		return nil, nil
	}
	r := &supervisor.Redaction{Mode: mode, Values: withhold.Values()}
	if mode == redact.Reversible && set.Redact.Recipient != "" {
		if _, err := vault.ParseRecipient(set.Redact.Recipient); err != nil {
			return nil, fmt.Errorf("redact.recipient of %s: %w", config.Path(s.Home()), err)
		}
		r.Recipient = set.Redact.Recipient
	}
	return r, nil
}

// redactIn gives a session what replaces secrets in it, if that is wanted.
func (e *environment) redactIn(s *session.Session) error {
	r, err := e.redaction(s)
	e.replacing = r
	if err == nil && r != nil {
		red, v := e.redactor(s, *r)
		e.vaults = append(e.vaults, v)
		s.SetRedactor(red)
	}
	return err
}

// cleared is a text without the secrets that the session replaces.
func (b *workbench) cleared(text string) string {
	if r := b.session.Redactor(); r != nil {
		left, _ := r.Text([]byte(text))
		return string(left)
	}
	return text
}

// redactor makes what replaces secrets in a session.
func (e *environment) redactor(s *session.Session, r supervisor.Redaction) (*redact.Redactor, *vault.Vault) {
	v := vault.New(vault.Options{
		Home: s.Home(), Dir: s.ArtifactsDir, Reversible: r.Mode == redact.Reversible, Recipient: r.Recipient,
		Sync: e.durability.value == session.Sync,
	})
	return redact.New(redact.Options{Values: r.Values, Number: v.Number}), v
}

// tellVaults says which secrets were replaced and could not be numbered or kept.
func (e *environment) tellVaults() {
	for _, v := range e.vaults {
		if err := v.Err(); err != nil {
			e.say("secrets were replaced, and some have the number 0: %v", err)
		}
	}
}

// redacting puts the replacement of secrets, by all rules there are, before a writer. Numbers go on behind those of the session. The function that
// it returns ends the text.
func (x *sessionExport) redacting(s *session.Session, w io.Writer) (io.Writer, func() error, error) {
	secrets, err := x.secretsOf(s, "")
	if err != nil {
		return nil, nil, err
	}
	last := int64(0)
	for _, one := range secrets {
		last = max(last, one.N)
	}
	number := redact.Count(last)
	theirs := gitleaks.NewWriter(w, number)
	ours := redact.New(redact.Options{Values: withhold.Values(), Number: number}).Writer(theirs)
	return ours, func() error {
		if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
			return err
		}
		x.remark("%s replaced", count(ours.Replaced()+theirs.Replaced(), "secret was", "secrets were"))
		return nil
	}, nil
}
