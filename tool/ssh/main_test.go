package ssh_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Setenv("PLANTED_TOKEN", "do-not-send") // nothing of it may get to a host
	os.Setenv("LC_PLANTED", "do-not-send")    // which the configurations of many systems would send
	goleak.VerifyTestMain(m)
}
