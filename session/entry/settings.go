package entry

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/tidwall/gjson"
)

// Values that settings start from, and names they go by.
const (
	ThinkingOff      = "off"
	ModeNone         = "none"
	ModelRoleDefault = "default"
	// ModelRoleFallback is a model that a retry chose for once; resuming a session
	// does not restore it.
	ModelRoleFallback = "fallback"
)

// Settings is what the entries of a path have set, the last one of each kind
// counting. The zero value is the state before the first entry. Its JSON is stored
// in compactions ([Checkpoint]) and may be stored in indexes.
type Settings struct {
	// Models maps roles to models ("provider/id").
	Models map[string]string `json:"models,omitempty"`
	// ExplicitModel says that a model_change has set the default model. Until then
	// the model that answered last counts as the default.
	ExplicitModel bool `json:"explicitModel,omitempty"`
	// ThinkingLevel is the level in force, "" as long as none was set: see Thinking.
	ThinkingLevel string `json:"thinkingLevel,omitempty"`
	// ConfiguredThinking is what a person chose, "auto" or a level, "" if unknown.
	ConfiguredThinking string       `json:"configuredThinking,omitempty"`
	ServiceTier        *ServiceTier `json:"serviceTier,omitempty"`
	// Mode is the mode in force, "" as long as none was entered or left.
	Mode     string          `json:"mode,omitempty"`
	ModeData json.RawMessage `json:"modeData,omitempty"`
	// TTSRRules are the rules injected so far, in order, each once.
	TTSRRules []string `json:"ttsrRules,omitempty"`
}

// DefaultModel returns the session's model, "" if none is known.
func (s Settings) DefaultModel() string { return s.Models[ModelRoleDefault] }

// Thinking returns the thinking level in force.
func (s Settings) Thinking() string {
	if s.ThinkingLevel == "" {
		return ThinkingOff
	}
	return s.ThinkingLevel
}

// Clone returns a copy that shares nothing with s.
func (s Settings) Clone() Settings {
	s.Models = maps.Clone(s.Models)
	s.ModeData = slices.Clone(s.ModeData)
	s.TTSRRules = slices.Clone(s.TTSRRules)
	if s.ServiceTier != nil {
		tier := *s.ServiceTier
		s.ServiceTier = &tier
	}
	return s
}

// Fold applies one entry to s. Folding a path from its root gives the settings at
// its end; an entry with a checkpoint gives them without what comes before it.
func Fold(s *Settings, e Entry) {
	switch e.typ {
	case TypeMessage:
		if !s.ExplicitModel && e.Role() == RoleAssistant {
			s.inferModel(e)
		}
	case TypeModelChange:
		s.foldModel(e)
	case TypeThinkingLevelChange:
		level := gjson.Get(text(e.raw), "thinkingLevel")
		s.ThinkingLevel = str(level)
		if s.ThinkingLevel == "" {
			s.ThinkingLevel = ThinkingOff
		}
		s.ConfiguredThinking = str(gjson.Get(text(e.raw), "configured"))
		if s.ConfiguredThinking == "" {
			s.ConfiguredThinking = str(level)
		}
	case TypeServiceTierChange:
		s.ServiceTier = nil
		if tier := gjson.Get(text(e.raw), "serviceTier"); tier.IsObject() {
			s.ServiceTier = &ServiceTier{
				OpenAI: str(tier.Get("openai")), Anthropic: str(tier.Get("anthropic")), Google: str(tier.Get("google")),
			}
		}
	case TypeModeChange:
		s.Mode, s.ModeData = str(gjson.Get(text(e.raw), "mode")), nil
		if data := gjson.Get(text(e.raw), "data"); data.IsObject() {
			s.ModeData = json.RawMessage(data.Raw)
		}
	case TypeTTSRInjection:
		for rule := range elements(gjson.Get(text(e.raw), "injectedRules")) {
			if name := str(rule); name != "" && !slices.Contains(s.TTSRRules, name) {
				s.TTSRRules = append(s.TTSRRules, name)
			}
		}
	case TypeCompaction, TypeResetBoundary:
		if c, ok := e.Checkpoint(); ok {
			*s = c.Settings
		}
	}
}

func (s *Settings) foldModel(e Entry) {
	line := text(e.raw)
	b := ModelChange{
		Model: str(gjson.Get(line, "model")), Provider: str(gjson.Get(line, "provider")),
		ModelID: str(gjson.Get(line, "modelId")), Role: str(gjson.Get(line, "role")),
	}
	if b.Selector() == "" {
		return
	}
	if b.Role == "" {
		b.Role = ModelRoleDefault
	}
	s.setModel(b.Role, b.Selector())
	s.ExplicitModel = s.ExplicitModel || b.Role == ModelRoleDefault
}

// inferModel takes the default model from an answer, and reports whether it names
// one.
func (s *Settings) inferModel(e Entry) bool {
	m := e.message()
	model := ModelChange{Provider: str(m.Get("provider")), ModelID: str(m.Get("model"))}.Selector()
	if model == "" {
		return false
	}
	s.setModel(ModelRoleDefault, model)
	return true
}

func (s *Settings) setModel(role, model string) {
	if s.Models == nil {
		s.Models = make(map[string]string, 1)
	}
	s.Models[role] = model
}

// Checkpoint returns the checkpoint that the entry carries. One that does not
// decode counts as none.
func (e Entry) Checkpoint() (Checkpoint, bool) {
	if e.typ != TypeCompaction && e.typ != TypeResetBoundary || !mentions(e.raw, "agentrun") {
		return Checkpoint{}, false
	}
	m := gjson.Get(text(e.raw), "agentrun")
	if !m.Get("settings").IsObject() {
		return Checkpoint{}, false
	}
	var c Checkpoint
	if err := json.Unmarshal([]byte(m.Raw), &c); err != nil {
		return Checkpoint{}, false
	}
	return c, true
}

// Title returns the title that the entry gives the session, and whether a person
// or a program chose it ("user", "auto", or "" if the entry does not tell). It is
// false for entries that give none. The last such entry of the file counts, on
// whatever branch it stands.
func (e Entry) Title() (title, source string, ok bool) {
	var t gjson.Result
	switch e.typ {
	case TypeTitleChange:
		t, source = gjson.Get(text(e.raw), "title"), str(gjson.Get(text(e.raw), "source"))
	case TypeSessionInfo:
		t = gjson.Get(text(e.raw), "name")
	}
	if t.Type != gjson.String {
		return "", "", false
	}
	return t.Str, source, true
}
