package quantity

import (
	"testing"
	"time"
)

func TestQuantitiesAreWrittenAsPeopleReadThem(t *testing.T) {
	for want, got := range map[string]string{
		"0 B": Bytes(0), "1023 B": Bytes(1023), "1.0 KB": Bytes(1024), "1.0 MB": Bytes(1<<20 - 1), "1.5 GB": Bytes(3 << 29), "2048.0 TB": Bytes(1 << 51),
		"0": Size(0), "1000": Size(1000), "1KiB": Size(1024), "1536KiB": Size(3 << 19), "64MiB": Size(64 << 20), "1GiB": Size(1 << 30), "2048TiB": Size(1 << 51), "-1KiB": Size(-1024),
		"0s": Time(0), "5m": Time(5 * time.Minute), "1h": Time(time.Hour), "1h30m": Time(90 * time.Minute), "1h0m5s": Time(time.Hour + 5*time.Second),
		"10s": Time(10 * time.Second), "10m": Time(10 * time.Minute), "24h": Time(24 * time.Hour), "1.5s": Time(1500 * time.Millisecond), "300ms": Time(300 * time.Millisecond),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
