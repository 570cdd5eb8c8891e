package entry

// Usage is what a model call took, in tokens.
type Usage struct {
	Input           int64    `json:"input"`
	Output          int64    `json:"output"`
	CacheRead       int64    `json:"cacheRead"`
	CacheWrite      int64    `json:"cacheWrite"`
	TotalTokens     int64    `json:"totalTokens"`
	ReasoningTokens *int64   `json:"reasoningTokens,omitempty"`
	PremiumRequests *float64 `json:"premiumRequests,omitempty"`
	Cost            Cost     `json:"cost"`
}

// Cost is what a model call cost, in US dollars.
type Cost struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
	Total      float64 `json:"total"`
}
