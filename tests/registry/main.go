// The reference registry of the OCI distribution specification, with what its tests need of it.
//
// Of stores only the one in memory, and of authentication passwords and tokens: with all of them
// the build takes minutes longer.
package main

import (
	"os"

	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/auth/token"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"

	"github.com/distribution/distribution/v3/registry"
)

func main() {
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
}
