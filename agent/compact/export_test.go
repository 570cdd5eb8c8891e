package compact

// BeforeEntry has f called between a summary and its entry.
func BeforeEntry(f func()) { beforeEntry = f }
