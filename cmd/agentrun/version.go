package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of agentrun",
		Args:  positional(0, 0, "no arguments"),
		Long:  "version prints the version of agentrun, with --json as an object: version, go,\nplatform.",
		RunE:  func(*cobra.Command, []string) error { return env.printVersion() },

		Annotations: map[string]string{needsNoHome: "yes"},
	}
}

func (e *environment) printVersion() error {
	v := buildVersion()
	if e.json {
		return printJSON(e.stdout, v)
	}
	_, err := fmt.Fprintf(e.stdout, "agentrun %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	return err
}

type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// buildVersion is what the linker noted: a released version, or the commit.
func buildVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	return v
}
