// Selects tags as image policies of Flux do, for policies and lists of tags on standard input.
//
// It stands on what image-reflector-controller stands on: Masterminds' versions, Flux's own reading of
// them, and Go's `regexp` and `strconv`. Where several tags of a list are equal, the controller's answer
// depends on the order of the list or on chance; here it depends on the order alone.
package main

import (
	"encoding/json"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/fluxcd/pkg/version"
)

// Case is a policy, by the fields of an ImagePolicy's spec, with lists to select from.
type Case struct {
	Policy struct {
		SemVer       *struct{ Range string }
		Alphabetical *struct{ Order string }
		Numerical    *struct{ Order string }
	}
	FilterTags *struct{ Pattern, Extract string }
	Lists      [][]string
}

// rule is how values are compared. An error of `takes` is one of the whole list.
type rule struct {
	takes   func(value string) (bool, error)
	isNewer func(value, selected string) bool
}

func main() {
	log.SetFlags(0)
	var cases []Case
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		log.Fatal(err)
	}
	answers := make([][]string, len(cases))
	for at, one := range cases {
		extract, comparing := newExtract(&one), newRule(&one)
		for _, tags := range one.Lists {
			answers[at] = append(answers[at], selectTag(extract, comparing, tags))
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}

// selectTag returns the tag that a policy selects from a list; empty where it selects none.
func selectTag(extract func(string) (string, bool), comparing rule, tags []string) string {
	// Of tags with the same value the last one counts.
	byValue := map[string]string{}
	var values []string
	for _, tag := range tags {
		value, matches := extract(tag)
		if !matches {
			continue
		}
		if _, repeats := byValue[value]; !repeats {
			values = append(values, value)
		}
		byValue[value] = tag
	}
	selected, found := "", false
	for _, value := range values {
		isTaken, err := comparing.takes(value)
		if err != nil {
			return ""
		}
		if isTaken && (!found || comparing.isNewer(value, selected)) {
			selected, found = value, true
		}
	}
	if !found {
		return ""
	}
	return byValue[selected]
}

// newExtract returns what tells the value of a tag, and whether the tag is considered at all.
func newExtract(one *Case) func(string) (string, bool) {
	if one.FilterTags == nil {
		return func(tag string) (string, bool) { return tag, true }
	}
	pattern, template := regexp.MustCompile(one.FilterTags.Pattern), one.FilterTags.Extract
	return func(tag string) (string, bool) {
		match := pattern.FindStringSubmatchIndex(tag)
		if match == nil || template == "" {
			return tag, match != nil
		}
		return string(pattern.ExpandString(nil, template, tag, match)), true
	}
}

func newRule(one *Case) rule {
	policy := one.Policy
	switch {
	case policy.SemVer != nil:
		constraint, err := semver.NewConstraint(policy.SemVer.Range)
		if err != nil {
			log.Fatal(err)
		}
		return rule{
			takes: func(value string) (bool, error) {
				parsed, err := version.ParseVersion(value)
				return err == nil && constraint.Check(parsed), nil
			},
			isNewer: func(value, selected string) bool {
				one, _ := version.ParseVersion(value)
				other, _ := version.ParseVersion(selected)
				return one.GreaterThan(other)
			},
		}
	case policy.Alphabetical != nil:
		isLeast := strings.EqualFold(policy.Alphabetical.Order, "desc")
		return rule{
			takes:   func(string) (bool, error) { return true, nil },
			isNewer: func(value, selected string) bool { return (value < selected) == isLeast },
		}
	case policy.Numerical != nil:
		isLeast := strings.EqualFold(policy.Numerical.Order, "desc")
		return rule{
			takes: func(value string) (bool, error) {
				_, err := strconv.ParseFloat(value, 64)
				return err == nil, err
			},
			isNewer: func(value, selected string) bool {
				one, _ := strconv.ParseFloat(value, 64)
				other, _ := strconv.ParseFloat(selected, 64)
				return one == other || (one < other) == isLeast
			},
		}
	}
	log.Fatal("there is no policy")
	return rule{}
}
