package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/session"
)

func newStateCommand(env *environment) *cobra.Command {
	return group(&cobra.Command{
		Use:   "state",
		Short: "Make sessions states of conversations, and states sessions",
		Long: `state turns sessions into the form in which other agents and machines know a
conversation, agent.v1.ConversationStateStructure, whose parts are blobs, and
such states into sessions. What that form has no place for goes along beside it:
a state that nobody changed becomes the same session again, to the byte.

A checkpoint is a state that is kept: the latest one of a conversation (which is
a session, by its id), and one for each message of a person (a bubble, by the id
of its entry).`,
	}, newStateExportCommand(env), newStateImportCommand(env),
		newStateCheckpointCommand(env), newStateCheckpointsCommand(env), newStateRestoreCommand(env), newStateForgetCommand(env))
}

// stateExport is the command state export.
type stateExport struct {
	*environment
	out   outputFile
	store storeFlag
}

func newStateExportCommand(env *environment) *cobra.Command {
	x := stateExport{environment: env, store: storeFlag{makes: true}}
	cmd := &cobra.Command{
		Use:   "export [ID]",
		Short: "Write the state of a session to a file",
		Long: `export writes the state of a session, as protobuf, with all blobs that it refers
to: agentrun state import makes a session of it elsewhere. To programs that know
the message alone the blobs are a field that they do not know.

With --store the blobs go to that store, and the file has the state alone.

A log that has lost its header, given as a path, is no session to other commands
before agentrun doctor --repair; its state can be written all the same.

With --json it prints the state as canonical JSON; a FILE called *.json gets
that, too. It is to be read: it has no blobs, and cannot be imported.`,
		Example: `  agentrun state export -o work.binpb
  agentrun state export 01a1fa9b -o work.binpb --store dir:/mnt/blobs
  agentrun state export --json | jq '.turns | length'`,
		Args:              positional(0, 1, "at most one session"),
		ValidArgsFunction: completeSession(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			return x.interruptible(cmd.Context(), func(ctx context.Context) error { return x.run(ctx, only(args, 0)) })
		},
	}
	cmd.Flags().StringVarP(&x.out.name, "output", "o", "", "write to `FILE`, - for the standard output")
	cmd.Flags().BoolVar(&x.out.force, "force", false, "replace a file that is there")
	x.store.addTo(cmd)
	return cmd
}

func (x *stateExport) run(ctx context.Context, arg string) (err error) {
	switch {
	case x.out.name == "" && !x.json:
		return usagef("say where to: agentrun state export -o FILE")
	case x.out.name == "-" && x.json:
		return usagef("either the state or its JSON goes to the standard output: leave out --json, or -o -")
	case x.out.name == "-" && isTerminal(x.stdout):
		return usagef("a state is no text for a terminal: give -o FILE, or a pipe, or --json")
	}
	if x.out.name != "" {
		if err := x.out.check(); err != nil {
			return err
		}
	}
	m, err := x.manager()
	if err != nil {
		return err
	}
	from, err := x.stateSource(ctx, m, arg)
	if err != nil {
		return err
	}
	defer func() { err = from.close(err) }()
	store, done, err := x.exportStore(ctx, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	shown := x.progress("reading the log, MB")
	defer shown.end()
	p, err := from.project(ctx, store, shown.megabytes)
	if err != nil {
		return err
	}
	shown.end()
	if from.headless != "" {
		x.remark("%s has no session header: the state has its entries; what is made of it gets a header, with a new id", from.headless)
	}
	if _, err := x.settle(ctx, store, x.store.stack); err != nil {
		return err
	}
	x.tellHoles(p.Holes)
	if x.out.name != "" {
		if err := x.writeState(ctx, store, p); err != nil {
			return err
		}
	}
	if !x.json {
		x.remark("%s: the state of %s, %s", x.out.name, from.name(), count(int64(p.Turns), "turn", "turns"))
		return nil
	}
	text, err := conversation.JSON(p.State)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(x.stdout, "%s\n", text)
	return err
}

// exportStore is where the blobs of the state go: the store that was named, else a directory for as long as this takes.
func (x *stateExport) exportStore(ctx context.Context, m *session.Manager) (blobstore.Store, func() error, error) {
	if x.store.url != "" {
		return x.store.open(ctx, x.environment, m)
	}
	return scratchStore(m.Home())
}

// scratchStore is a store for the length of a command: in memory it would be as large as the session.
func scratchStore(home string) (blobstore.Store, func() error, error) {
	parent := "" // that of the system
	if info, err := os.Stat(home); err == nil && info.IsDir() {
		parent = home // where there is room for another one of what is there
	}
	dir, err := os.MkdirTemp(parent, ".tmp-state-")
	if err != nil {
		if dir, err = os.MkdirTemp("", "agentrun-state-"); err != nil {
			return nil, nil, err
		}
	}
	store, err := localdir.Open(dir, localdir.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return store, func() error { return os.RemoveAll(dir) }, nil
}

func (x *stateExport) writeState(ctx context.Context, store blobstore.Store, p conversation.Projection) error {
	var holes []*conversation.Hole
	shown := x.progress("writing " + x.out.name)
	defer shown.end()
	err := x.out.write(ctx, x.stdout, func(w io.Writer) error {
		switch {
		case filepath.Ext(x.out.name) == ".json":
			text, err := conversation.JSON(p.State)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(w, "%s\n", text)
			return err
		case x.store.url != "":
			_, err := w.Write(p.State)
			return err
		}
		t, err := conversation.StateForTransfer(ctx, store, p.Root, conversation.Limits{})
		if err != nil {
			return err
		}
		written := int64(0)
		holes, err = t.Write(writerFunc(func(p []byte) (int, error) {
			n, err := w.Write(p)
			written += int64(n)
			shown.bytes(written)
			return n, err
		}))
		return err
	})
	shown.end()
	x.tellHoles(holes)
	return err
}

// tellHoles says what is not there of a state.
func (e *environment) tellHoles(holes []*conversation.Hole) {
	const most = 20
	for _, h := range holes[:min(len(holes), most)] {
		e.remark("not in it: %s", oneLine(h.Error()))
	}
	if n := len(holes) - most; n > 0 {
		e.remark("and %s more are not in it", count(int64(n), "blob", "blobs"))
	}
}

// stateImport is the command state import.
type stateImport struct {
	*environment
	maps  pathMaps
	store storeFlag
}

func newStateImportCommand(env *environment) *cobra.Command {
	x := stateImport{environment: env}
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a session of a state",
		Long: `import makes a session of a state in a file, - for the standard input: one that
agentrun state export wrote, or that another program has, in any of its forms
(protobuf, "~" and base64, hexadecimal digits; the old form with its parts
inside, too). What is not in the file is looked for in the store that --store
names, else in the home.

The session has the id that it had; where the home has a session of that id it
gets a new one. What a state refers to and is nowhere to be found is said, and
costs what it holds.

With --json it prints an object: session, path.`,
		Example: `  agentrun state import work.binpb
  agentrun state import state.txt --store diskkv:$HOME/state.vscdb
  agentrun state import work.binpb --map /home/ann/work=$PWD`,
		Args: positional(1, 1, "the file to import"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return x.interruptible(cmd.Context(), func(ctx context.Context) error { return x.run(ctx, args[0]) })
		},
	}
	cmd.Flags().Var(&x.maps, "map", "`OLD=NEW`: what lay in OLD lies in NEW here; may be given more than once")
	x.store.addTo(cmd)
	return cmd
}

func (x *stateImport) run(ctx context.Context, name string) (err error) {
	if x.session != "" {
		return usagef("import makes a session of its own: leave --session out")
	}
	m, err := x.manager()
	if err != nil {
		return err
	}
	in, total := io.Reader(os.Stdin), int64(0)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("importing a state: %w", err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			total = info.Size()
		}
		in = f
	}
	below, done, err := x.store.open(ctx, x.environment, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	scratch, remove, err := scratchStore(m.Home())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	store := overlay{upper: scratch, lower: below}
	watched := x.watched(in, "reading "+name, total)
	defer watched.p.end()
	root, err := conversation.ReadTransfer(ctx, watched, store)
	watched.p.end()
	if err != nil {
		return fmt.Errorf("importing %s: %w", name, err)
	}
	return x.importState(ctx, m, store, root, conversation.ImportOptions{Map: x.maps})
}

// importState makes a session of a state and reports it.
func (e *environment) importState(ctx context.Context, m *session.Manager, store blobstore.Store, root blobref.Ref, o conversation.ImportOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	shown := e.progress("making a session of the state")
	defer shown.end()
	s, err := conversation.Load(ctx, &untilRefused{Store: store, cancel: cancel, shown: shown}, root, conversation.Limits{})
	if err == nil {
		err = anythingOf(ctx, s)
	}
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	made, err := conversation.Import(ctx, m, s, o)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	shown.end()
	e.tellHoles(made.Holes)
	if made.HeaderMade {
		e.remark("its log had no header: it has one now, with a new id and the working directory %s", oneLine(made.CWD))
	}
	if e.json {
		return printJSON(e.stdout, struct {
			Session string `json:"session"`
			Path    string `json:"path"`
		}{made.Session, made.Path})
	}
	how := fmt.Sprintf("%s of it were converted", count(int64(made.Converted), "turn", "turns"))
	switch {
	case len(made.Holes) > 0:
		how = "what is not in it is lacking"
	case made.HeaderMade && made.Converted == 0:
		how = "its entries are as they were, to the byte"
	case made.Exact:
		how = "its entries are as they were, to the byte"
	}
	e.remark("session %s: %s; %s", made.Session, made.Path, how)
	return nil
}

// untilRefused is a store of which a blob that cannot be had, though it may be there, ends everything: with another
// passphrase, or when the store can be reached, it is there. It shows how much was read.
type untilRefused struct {
	blobstore.Store
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	shown *progress // guarded by mu
	bytes int64     // guarded by mu
}

func (u *untilRefused) Get(ctx context.Context, r blobref.Ref) ([]byte, error) {
	data, err := u.Store.Get(ctx, r)
	u.mu.Lock()
	u.bytes += int64(len(data))
	u.shown.bytes(u.bytes)
	u.mu.Unlock()
	if err != nil && !errors.Is(err, blobstore.ErrNotFound) && !errors.Is(err, blobstore.ErrCorrupt) && ctx.Err() == nil {
		u.cancel(err)
	}
	return data, err
}

func (u *untilRefused) Mode() blobstore.Mode { return blobstore.ModeOf(u.Store) }

// anythingOf refuses a state of whose turns none is there: its blobs are elsewhere.
func anythingOf(ctx context.Context, s *conversation.State) error {
	if s.Len() == 0 {
		return nil
	}
	for _, i := range []int{s.Len() - 1, 0} {
		t, err := s.Turn(ctx, i)
		if err != nil {
			return err
		}
		if t.Agent != nil || t.Shell != nil {
			return nil
		}
	}
	return errors.New("the blobs of the state are neither in the file nor in the store; name the store that has them with --store")
}

// overlay reads what the upper store does not have from the lower one, and stores into the upper one.
type overlay struct{ upper, lower blobstore.Store }

func (o overlay) Get(ctx context.Context, r blobref.Ref) ([]byte, error) {
	data, err := o.upper.Get(ctx, r)
	if errors.Is(err, blobstore.ErrNotFound) {
		return o.lower.Get(ctx, r)
	}
	return data, err
}

func (o overlay) Set(ctx context.Context, r blobref.Ref, data []byte) error {
	return o.upper.Set(ctx, r, data)
}

func (o overlay) SetStream(ctx context.Context, r blobref.Ref, in io.Reader, size int64) error {
	return blobstore.SetStream(ctx, o.upper, r, in, size)
}

func (o overlay) SetLocal(ctx context.Context, r blobref.Ref, data []byte) error {
	return o.upper.SetLocal(ctx, r, data)
}

func (o overlay) Flush(ctx context.Context) error { return o.upper.Flush(ctx) }

func (o overlay) Mode() blobstore.Mode { return blobstore.ModeOf(o.upper) }
