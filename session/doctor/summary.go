package doctor

// Plus is the sum of two summaries.
func (s Summary) Plus(t Summary) Summary {
	s.Logs += t.Logs
	s.Entries += t.Entries
	s.Artifacts += t.Artifacts
	s.Blobs += t.Blobs
	s.Bytes += t.Bytes
	s.Findings += t.Findings
	s.Repaired += t.Repaired
	s.Unmendable += t.Unmendable
	s.Unsealed += t.Unsealed
	s.Unsummed += t.Unsummed
	s.Absent = append(s.Absent, t.Absent...)
	return s
}
