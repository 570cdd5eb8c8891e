package blobref_test

import (
	"fmt"

	"github.com/agentrun/agentrun/blobref"
)

func ExampleOf() {
	ref := blobref.Of([]byte("a screenshot"))
	fmt.Println(ref)
	fmt.Println(ref.Verify([]byte("a screenshot")), ref.Verify([]byte("another")))
	// Output:
	// blob:sha256:6c043a95dd43f123ccc16ed42802fff8fa70fd20b0c49f77c814a44a1e2f3549
	// true false
}

func ExampleParse() {
	_, err := blobref.Parse("blob:sha256:../../etc/passwd")
	fmt.Println(err)
	// Output:
	// parsing blob reference "blob:sha256:../../etc/passwd": not a blob reference (want "blob:sha256:" and 64 lower-case hexadecimal digits)
}
