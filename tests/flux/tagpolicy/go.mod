module rollout-operator.test/tagpolicy

go 1.26.0

godebug default=go1.26

require (
	github.com/Masterminds/semver/v3 v3.5.0
	github.com/fluxcd/pkg/version v0.16.0
)
