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
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if env.json {
				return printJSON(env.stdout, v)
			}
			_, err := fmt.Fprintf(env.stdout, "agentrun %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return err
		},
	}
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
