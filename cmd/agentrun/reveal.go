package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/redact/vault"
	"github.com/agentrun/agentrun/session"
)

func newRevealCommand(env *environment) *cobra.Command {
	var identity string
	cmd := &cobra.Command{
		Use:   "reveal [N]",
		Short: "Show secrets that were replaced, to their owner",
		Long: `reveal lists the secrets that were replaced in a session, [redacted:KIND:N], and
prints number N, to the byte. Secrets are kept by --redact reversible alone,
encrypted with age: to redact.recipient of config.json, else to the identity in
redact.identity of the home. With --redact on they are gone.

With --json it prints an object a line: n, kind, secret (null where it was not
kept, or not for this identity).`,
		Example: `  agentrun exec --redact reversible -- ./deploy
  agentrun reveal
  agentrun reveal 1`,
		Args: positional(0, 1, "the number of a secret"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.reveal(cmd.Context(), only(args, 0), identity)
		},
	}
	cmd.Flags().StringVar(&identity, "identity", "", "decrypt with the identities of age that are in `FILE`")
	return cmd
}

// revealed is what reveal --json prints.
type revealed struct {
	N      int64   `json:"n"`
	Kind   string  `json:"kind"`
	Secret *string `json:"secret"`
}

func (e *environment) reveal(ctx context.Context, arg, identity string) (err error) {
	want := int64(0)
	if arg != "" {
		if want, err = strconv.ParseInt(arg, 10, 64); err != nil || want < 1 {
			return usagef("%q is no number of a secret: it is the last part of [redacted:KIND:N]", arg)
		}
	}
	_, s, err := e.view(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	secrets, err := e.secretsOf(s, identity)
	if err != nil {
		return err
	}
	t := table(e.stdout)
	for _, x := range secrets {
		if want != 0 && x.N != want {
			continue
		}
		switch {
		case e.json:
			r := revealed{N: x.N, Kind: x.Kind}
			if x.Text != nil {
				text := string(x.Text)
				r.Secret = &text
			}
			if err := printJSON(e.stdout, r); err != nil {
				return err
			}
		case want == 0:
			fmt.Fprintf(t, "%d\t%s\t%s\n", x.N, x.Kind, fate(x))
		case x.Text == nil:
			return fmt.Errorf("secret %d can not be shown: it is %s", x.N, fate(x))
		default:
			_, err := io.WriteString(e.stdout, string(x.Text)+"\n")
			return err
		}
		if want != 0 {
			return nil
		}
	}
	switch {
	case want != 0:
		return fmt.Errorf("no secret %d was replaced in the session: agentrun reveal lists those that were", want)
	case len(secrets) == 0:
		e.remark("nothing was replaced in the session")
	}
	return t.Flush()
}

// fate says in words what became of a secret.
func fate(x vault.Secret) string {
	switch {
	case x.Text != nil:
		return "kept"
	case x.Kept:
		return "kept for another identity; --identity FILE names it"
	}
	return "not kept"
}

func (e *environment) secretsOf(s *session.Session, identity string) ([]vault.Secret, error) {
	dir := s.ArtifactsDir()
	if dir == "" {
		return nil, nil
	}
	return vault.Reveal(nil, s.Home(), dir, identity)
}
