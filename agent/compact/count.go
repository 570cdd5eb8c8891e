package compact

import (
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/agentrun/agentrun/agent"
)

// cl100k is a tokenizer of OpenAI. Those of other providers are not public, or change with the model; on English and code they
// differ by some per cent, and what a provider counted itself takes the place of the estimate with each answer. Its table is
// built when it is used first, which takes some 20 ms.
var cl100k = sync.OnceValue(codec.NewCl100kBase)

// countPiece is how long a text is counted at a time, in bytes: what the time of splitting it into words grows with.
const countPiece = 16 << 10

// Count counts the tokens of a text, as an estimate for whichever model. It takes some 200 ms for a megabyte, whatever the
// text is, and is safe for concurrent use.
func Count(text string) int64 {
	var n int64
	for len(text) > 0 {
		end := min(len(text), countPiece)
		for end < len(text) && end > countPiece-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		if k, err := cl100k().Count(text[:end]); err == nil {
			n += int64(k)
		} else {
			n += agent.EstimateTokens(text[:end])
		}
		text = text[end:]
	}
	return n
}
