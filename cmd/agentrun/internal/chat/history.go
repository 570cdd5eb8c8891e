package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// The prompts of a home are kept in the file HistoryFile: a JSON string a line, the last one last. It is replaced with
// each prompt, so that it is whole at any time; of two chats that do so at once one loses a prompt.
const (
	HistoryFile = "chat.history"

	maxHistory      = 1000    // prompts
	maxHistoryBytes = 4 << 20 // of the file
	maxPrompt       = 64 << 10
)

// ReadHistory returns the prompts of a home. Lines that are none are passed over.
func ReadHistory(home string) ([]string, error) {
	data, err := durable.ReadFile(durable.OS, filepath.Join(home, HistoryFile), maxHistoryBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the prompts before: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		var prompt string
		if json.Unmarshal([]byte(line), &prompt) == nil && strings.TrimSpace(prompt) != "" {
			all = append(all, prompt)
		}
	}
	return all[max(0, len(all)-maxHistory):], nil
}

// AddHistory adds a prompt. One that is very long is not kept: the session has it.
func AddHistory(home, prompt string) error {
	if len(prompt) > maxPrompt || strings.TrimSpace(prompt) == "" {
		return nil
	}
	all, err := ReadHistory(home)
	if err != nil {
		return err
	}
	if n := len(all); n > 0 && all[n-1] == prompt {
		return nil
	}
	all = append(all, prompt)
	var b strings.Builder
	size := 0
	first := len(all)
	lines := make([][]byte, len(all))
	for first > 0 && len(all)-first < maxHistory {
		line, err := json.Marshal(all[first-1])
		if err != nil {
			return fmt.Errorf("keeping a prompt: %w", err)
		}
		if size += len(line) + 1; size > maxHistoryBytes {
			break
		}
		first--
		lines[first] = line
	}
	for _, line := range lines[first:] {
		b.Write(line)
		b.WriteByte('\n')
	}
	if err := durable.WriteFile(durable.OS, filepath.Join(home, HistoryFile), false, []byte(b.String())); err != nil {
		return fmt.Errorf("keeping a prompt: %w", err)
	}
	return nil
}
