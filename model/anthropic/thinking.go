package anthropic

import (
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/model"
)

// budgets are the tokens of thinking for models before Claude 4.6, which want a number; 1,024
// is the least that the API takes.
var budgets = map[string]int64{
	model.ThinkingMinimal: 1024, model.ThinkingLow: 4096, model.ThinkingMedium: 10_240,
	model.ThinkingHigh: 20_480, model.ThinkingXHigh: 32_768,
}

// think is how a model is told how much to think. Claude 4.6 and later decide by themselves
// and are told an effort (documentation of adaptive thinking); those before 4.6 take a
// budget, and those of 5 and later refuse one. Some of these always think.
func think(id string, thinks bool, level string, maxTokens int64) (t *thinking, effort string) {
	v := versionOf(id)
	off := level == "" || level == model.ThinkingOff
	switch {
	case off && v.alwaysThinks():
		return nil, "low"
	case off && thinks && v.atLeast(5, 0):
		return &thinking{Type: "disabled"}, "" // left out, it would think
	case off:
		return nil, ""
	case v.atLeast(4, 6):
		effort = level
		switch {
		case level == model.ThinkingMinimal:
			effort = "low"
		case level == model.ThinkingXHigh && !v.atLeast(4, 7):
			effort = "max"
		}
		return &thinking{Type: "adaptive", Display: "summarized"}, effort
	}
	// The budget is a part of the limit, and some of that is for the answer.
	budget := min(budgets[level], maxTokens-1024)
	if budget < 1024 {
		return nil, ""
	}
	return &thinking{Type: "enabled", Budget: budget}, ""
}

// version is a generation of Claude.
type version struct {
	family       string
	major, minor int
}

// versionOf reads the name of a model: claude-opus-4-6, claude-sonnet-4-5-20250929,
// claude-3-7-sonnet-latest. The version of other names is 0.
func versionOf(id string) version {
	_, name, ok := strings.Cut(id, "claude-")
	if !ok {
		return version{}
	}
	var v version
	n := 0
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '.' || r == '@' || r == ':' }) {
		number, err := strconv.Atoi(part)
		switch {
		case err != nil && v.family == "" && part != "latest":
			v.family = part
		case err != nil || number > 99: // a date
		case n == 0:
			v.major, n = number, 1
		case n == 1:
			v.minor, n = number, 2
		}
	}
	return v
}

func (v version) atLeast(major, minor int) bool {
	return v.major > major || v.major == major && v.minor >= minor
}

// alwaysThinks reports whether the model refuses not to think.
func (v version) alwaysThinks() bool {
	switch v.family {
	case "fable", "mythos":
		return true
	case "opus":
		return v.atLeast(5, 5)
	}
	return false
}
