package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/supervisor"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/python"
)

func newPythonCommand(env *environment) *cobra.Command {
	run := &commandRun{environment: env, cell: &cell{}}
	cmd := &cobra.Command{
		Use:   "python [flags] CODE|-",
		Short: "Run Python code, keep its output, record the run",
		Long: `python runs code, or with - the standard input, in a python3: that of a virtual
environment in the working directory (.venv, venv), else of VIRTUAL_ENV, else of
the PATH. It shows and keeps the output as exec does. Code that begins with -
goes behind --. The cell is interrupted after 300 s unless --timeout says
otherwise (0 never).

The value of a last expression is shown, await stands anywhere, display(value)
shows more. Figures of matplotlib and images are kept as blobs and named;
agentrun read prints one. input() fails at once. The code can ask agentrun:
agentrun.read(url), agentrun.bash(script), agentrun.artifact(name, data).

With --kernel NAME the cell runs in a kernel of the session that goes on: the
next cell with that NAME finds its variables, imports and working directory, but
not what --env gave. It ends after 30 minutes without a cell. A second cell at
the same time has a kernel of its own. A cell that is ended by --timeout or a
signal gets KeyboardInterrupt first, and the kernel goes on. Without --kernel
what the code leaves running is ended.

The run is recorded in a session as that of exec is. The exit status is 0, 1
after an exception, that of sys.exit, 124 after --timeout, and else as that of
exec. With --json an object is printed as by exec, and with it images (blob
references) and result (the text of the last expression, or null).`,
		Example: `  agentrun python 'import sys; sys.version'
  agentrun python --kernel work 'import pandas as pd; df = pd.read_csv("a.csv")'
  agentrun python --kernel work --json 'df.describe()' | jq -r .result
  agentrun python - <script.py`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("python takes code, or - for the standard input: quote it, as in: agentrun python 'print(1)'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("kernel") && run.cell.kernel == "" {
				return usagef("--kernel is empty: give the name of a kernel, or leave it out")
			}
			code := args[0]
			if code == "-" {
				b, err := env.readInput("-", python.MaxCode)
				if err != nil {
					return failed(err)
				}
				code = string(b)
			}
			if strings.TrimSpace(code) == "" {
				return usagef("there is no code: give some, as in: agentrun python 'print(1)'")
			}
			if err := python.CheckCode(code); err != nil {
				return usagef("%w", err)
			}
			return run.run(cmd.Context(), bash.Options{Script: code})
		},
	}
	run.addFlags(cmd.Flags())
	run.timeout = timeout(bash.DefaultTimeout)
	cmd.Flags().Lookup("timeout").DefValue = run.timeout.String()
	cmd.Flags().StringVar(&run.cell.kernel, "kernel", "", "run in the kernel of the session called `NAME`")
	cmd.Flags().StringVar(&run.cell.interpreter, "interpreter", "", "Python is `PROGRAM`, 3.8 or later")
	return cmd
}

// cell is what the verb python has besides that of a command.
type cell struct {
	kernel      string // --kernel
	interpreter string // --interpreter

	result python.Result
}

// cellResult is what python --json prints besides what exec does.
type cellResult struct {
	Images []string `json:"images"`
	Result *string  `json:"result"`
}

// describe is nil for what is no cell.
func (c *cell) describe() *cellResult {
	if c == nil {
		return nil
	}
	r := &cellResult{Images: c.result.Images, Result: c.result.Outcome.Result}
	if r.Images == nil {
		r.Images = []string{}
	}
	return r
}

// explain says where the images are.
func (c *cell) explain(e *environment) {
	if c == nil || e.json {
		return
	}
	for i, ref := range c.result.Images {
		if ref, err := blobref.Parse(ref); err == nil {
			e.remark("image %d is kept as blob://sha256/%s", i+1, ref.Hex())
		}
	}
}

// runCell runs code in a kernel.
func (r *commandRun) runCell(ctx context.Context, s *session.Session, o bash.Options) (bash.Result, error) {
	m, err := r.manager()
	if err != nil {
		return bash.Result{}, err
	}
	services := &python.Services{
		Router: routerOf(m, s), Artifacts: o.Artifacts,
		Bash: bash.Options{Log: o.Log, Artifacts: o.Artifacts, Sandbox: r.policy, Redact: o.Redact},
	}
	kernel, done, err := r.kernel(s)
	if err != nil {
		return bash.Result{}, err
	}
	defer done()
	r.cell.result, err = python.Run(ctx, python.RunOptions{Options: o, Kernel: kernel, Host: services.Host, Blobs: s})
	return r.cell.result.Result, err
}

// kernel is the one that the flags ask for. The function that it returns ends one of this process.
func (r *commandRun) kernel(s *session.Session) (python.Runner, func(), error) {
	if r.cell.kernel != "" {
		cwd, err := workingDirectory()
		if err != nil {
			return nil, nil, err
		}
		return &supervisor.Kernel{Client: r.supervisorOf(s), Name: r.cell.kernel, Path: r.cell.interpreter, Cwd: cwd, Sandbox: r.policy}, func() {}, nil
	}
	k, err := python.New(python.Options{Path: r.cell.interpreter, Single: true, Sandbox: r.policy})
	if err != nil {
		return nil, nil, err
	}
	return k, func() { k.Close() }, nil
}
