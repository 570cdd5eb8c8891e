package entry

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func fold(path []Entry) Settings {
	var s Settings
	for _, e := range path {
		Fold(&s, e)
	}
	return s
}

func models(m string) map[string]string { return map[string]string{ModelRoleDefault: m} }

func TestFold(t *testing.T) {
	for _, tt := range []struct {
		name string
		path []Entry
		want Settings
	}{
		{"nothing set", chain(user("a"), `custom "customType":"c"`), Settings{}},
		{
			"models by role", chain(`model_change "model":"p/a"`, `model_change "model":"p/b","role":"smol"`, `model_change "model":"p/c","role":"default"`, `model_change "model":"p/d","role":"fallback"`),
			Settings{Models: map[string]string{"default": "p/c", "smol": "p/b", "fallback": "p/d"}, ExplicitModel: true},
		},
		{"a model as pi writes it", chain(`model_change "provider":"p","modelId":"a/b"`), Settings{Models: models("p/a/b"), ExplicitModel: true}},
		{"a model change that names none", chain(`model_change "provider":"p"`, `model_change "model":7`), Settings{}},
		{"the model that answered last", chain(answer(), `message "message":{"role":"assistant","provider":"q","model":"n","content":[]}`), Settings{Models: models("q/n")}},
		{"a role does not make it explicit", chain(`model_change "model":"p/b","role":"smol"`, answer()), Settings{Models: map[string]string{"smol": "p/b", "default": "p/m"}}},
		{"an answer does not override a choice", chain(`model_change "model":"p/a"`, answer()), Settings{Models: models("p/a"), ExplicitModel: true}},
		{"an answer without a model", chain(answer(), `message "message":{"role":"assistant"}`), Settings{Models: models("p/m")}},
		{"the last thinking level", chain(`thinking_level_change "thinkingLevel":"low"`, `thinking_level_change "thinkingLevel":"high","configured":"auto"`), Settings{ThinkingLevel: "high", ConfiguredThinking: "auto"}},
		{"a level means itself", chain(`thinking_level_change "thinkingLevel":"low","configured":null`), Settings{ThinkingLevel: "low", ConfiguredThinking: "low"}},
		{"no level is off", chain(`thinking_level_change "thinkingLevel":"low"`, `thinking_level_change "thinkingLevel":null`), Settings{ThinkingLevel: "off"}},
		{"a service tier", chain(`service_tier_change "serviceTier":{"openai":"flex","google":7}`), Settings{ServiceTier: &ServiceTier{OpenAI: "flex"}}},
		{"a service tier taken back", chain(`service_tier_change "serviceTier":{"openai":"flex"}`, `service_tier_change "serviceTier":null`), Settings{}},
		{"a mode with data", chain(`mode_change "mode":"plan","data":{"file":"x"}`), Settings{Mode: "plan", ModeData: json.RawMessage(`{"file":"x"}`)}},
		{"a mode left", chain(`mode_change "mode":"plan","data":{"file":"x"}`, `mode_change "mode":"none"`), Settings{Mode: ModeNone}},
		{"rules, each once", chain(`ttsr_injection "injectedRules":["b","a"]`, `ttsr_injection "injectedRules":["a","c",7]`), Settings{TTSRRules: []string{"b", "a", "c"}}},
		{
			"a checkpoint replaces", chain(`model_change "model":"p/a"`, `mode_change "mode":"plan"`, `compaction "summary":"s","agentrun":{"settings":{"models":{"default":"p/z"},"explicitModel":true,"thinkingLevel":"low"}}`, `ttsr_injection "injectedRules":["a"]`),
			Settings{Models: models("p/z"), ExplicitModel: true, ThinkingLevel: "low", TTSRRules: []string{"a"}},
		},
		{"at a reset too", chain(`mode_change "mode":"plan"`, `reset_boundary "agentrun":{"settings":{}}`), Settings{}},
		{"a compaction without one does not", chain(`mode_change "mode":"plan"`, `compaction "summary":"s"`), Settings{Mode: "plan"}},
		{"nor one that is damaged", chain(`mode_change "mode":"plan"`, `compaction "agentrun":{"settings":{"models":7}}`, `compaction "agentrun":{"settings":7}`), Settings{Mode: "plan"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fold(tt.path); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if got := BuildContext(tt.path, ContextOptions{}).Settings; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("in a context %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestThinkingIsOffUnlessSet(t *testing.T) {
	if got := (Settings{}).Thinking(); got != ThinkingOff {
		t.Errorf("got %q", got)
	}
	if got := (Settings{ThinkingLevel: "low"}).Thinking(); got != "low" {
		t.Errorf("got %q", got)
	}
}

func TestContextsDoNotShareTheSettingsTheyStartFrom(t *testing.T) {
	base := Settings{Models: models("p/a"), TTSRRules: make([]string, 0, 8), ServiceTier: &ServiceTier{OpenAI: "flex"}, ModeData: json.RawMessage("{}")}
	ctx := BuildContext(chain(`model_change "model":"p/b"`, `ttsr_injection "injectedRules":["a"]`), ContextOptions{Settings: base})
	ctx.Settings.ServiceTier.OpenAI, ctx.Settings.ModeData[0] = "x", 'x'
	if !reflect.DeepEqual(base, Settings{Models: models("p/a"), TTSRRules: []string{}, ServiceTier: &ServiceTier{OpenAI: "flex"}, ModeData: json.RawMessage("{}")}) {
		t.Errorf("they became %+v", base)
	}
	if ctx.Settings.DefaultModel() != "p/b" {
		t.Errorf("the model is %q", ctx.Settings.DefaultModel())
	}
}

func TestTitle(t *testing.T) {
	for _, tt := range []struct {
		line, title, source string
		ok                  bool
	}{
		{`title_change "title":"t","source":"user"`, "t", "user", true},
		{`title_change "title":""`, "", "", true},
		{`session_info "name":"n"`, "n", "", true},
		{`session_info "name":null`, "", "", false},
		{`custom "title":"t"`, "", "", false},
	} {
		title, source, ok := chain(tt.line)[0].Title()
		if title != tt.title || source != tt.source || ok != tt.ok {
			t.Errorf("%s: %q, %q, %v", tt.line, title, source, ok)
		}
	}
}

// genPath draws paths with everything in it that contexts and settings look at.
func genPath(t *rapid.T) []Entry {
	line := rapid.Custom(func(t *rapid.T) string {
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3, rapid.ID[string]).Draw(t, "ids")
		id := rapid.SampledFrom([]string{"1", "2", "3", "5", "8", "13", "99", ""}).Draw(t, "id")
		one := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "call")
		replay := ""
		if rapid.Bool().Draw(t, "remote") {
			replay = `,"providerReplayThroughEntryId":"` + rapid.SampledFrom([]string{"1", "4", "99"}).Draw(t, "replay") +
				`","preserveData":{"openaiRemoteCompaction":{"provider":"p","replacementHistory":[]}}`
		}
		return rapid.SampledFrom([]string{
			user("a"), answer(ids...), answer(ids...), answer(ids...), result(one), result(one), result(one), ended(StopError, ids...), ended(StopAborted, ids...), note,
			`reset_boundary`, `compaction "summary":"s","firstKeptEntryId":"` + id + `"`,
			`compaction "summary":"s","firstKeptEntryId":"` + id + `"` + replay,
			`compaction "summary":"s","firstKeptEntryId":"` + id + `","agentrun":{"settings":{"mode":"m","explicitModel":true}}`,
			`model_change "model":"p/` + one + `"`, `model_change "model":"p/r","role":"smol"`, `mode_change "mode":"` + one + `"`,
			`thinking_level_change "thinkingLevel":"` + one + `"`, `ttsr_injection "injectedRules":["` + one + `"]`, `branch_summary "summary":"s"`,
		}).Draw(t, "line")
	})
	return chain(rapid.SliceOfN(line, 0, 30).Draw(t, "path")...)
}

func TestContextSettingsAreThoseOfAFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := genPath(t)
		got, want := BuildContext(path, ContextOptions{}).Settings, fold(path)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestContextsAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := genPath(t)
		ctx := BuildContext(path, ContextOptions{})
		checkValid(t, ctx)
		// Only results may change places.
		last := 0
		for i, m := range ctx.Messages {
			if m.Role == RoleToolResult || i == 0 && m.Role == RoleCompactionSummary {
				continue
			}
			at := 0
			for path[at].ID() != m.EntryID {
				at++
			}
			if at < last {
				t.Fatalf("message %d (%s) stands behind entry %d", i, m.EntryID, last)
			}
			last = at
		}
	})
}
