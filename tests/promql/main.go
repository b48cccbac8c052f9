// Evaluates PromQL as Prometheus does, on series that standard input holds.
//
// Reads one JSON document and writes another. Engine and parsers are those of Prometheus; the storage
// is a list in memory. An expression that is none is an answer as well.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Input is what is asked. All times are seconds.
type Input struct {
	Scrapes []Scrape `json:"scrapes"`
	Queries []Query  `json:"queries"`
}

// Scrape is a page of metrics as one target gave it at one time.
type Scrape struct {
	At     int64             `json:"at"`
	Page   string            `json:"page"`
	Labels map[string]string `json:"labels"`
}

// Query is evaluated from `Start` to `End`, both included.
type Query struct {
	Expression string `json:"expression"`
	Start      int64  `json:"start"`
	End        int64  `json:"end"`
	Step       int64  `json:"step"`
}

// Answer has the series of a query, or what is wrong with it.
type Answer struct {
	Series []Series `json:"series"`
	Error  string   `json:"error"`
}

// Series is one series with the times at which it has a value, and these values as text.
type Series struct {
	Labels map[string]string `json:"labels"`
	Times  []int64           `json:"times"`
	Values []string          `json:"values"`
}

func main() {
	var input Input
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		log.Fatal(err)
	}
	memory, err := load(input.Scrapes)
	if err != nil {
		log.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples:    50_000_000,
		Timeout:       time.Minute,
		LookbackDelta: 5 * time.Minute,
	})
	answers := make([]Answer, 0, len(input.Queries))
	for _, query := range input.Queries {
		answers = append(answers, evaluate(engine, memory, query))
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}

// entry is one series of the memory, its samples by time.
type entry struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func load(scrapes []Scrape) (storage.Queryable, error) {
	slices.SortStableFunc(scrapes, func(a, b Scrape) int { return int(a.At - b.At) })
	entries := map[string]*entry{}
	for _, scrape := range scrapes {
		if err := add(entries, scrape); err != nil {
			return nil, fmt.Errorf("scrape at %d: %w", scrape.At, err)
		}
	}
	list := make([]*entry, 0, len(entries))
	for _, one := range entries {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *entry) int { return labels.Compare(a.labels, b.labels) })
	querier := &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		return &found{list: list, matchers: matchers, place: -1}
	}}
	return &storage.MockQueryable{MockQuerier: querier}, nil
}

func add(entries map[string]*entry, scrape Scrape) error {
	parser := textparse.NewPromParser([]byte(scrape.Page), labels.NewSymbolTable(), false)
	for {
		kind, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if kind != textparse.EntrySeries {
			continue
		}
		_, _, value := parser.Series()
		var own labels.Labels
		parser.Labels(&own)
		builder := labels.NewBuilder(own)
		for name, text := range scrape.Labels {
			// As Prometheus does where a scrape does not honor the labels of the page.
			if old := own.Get(name); old != "" {
				builder.Set("exported_"+name, old)
			}
			builder.Set(name, text)
		}
		all := builder.Labels()
		one := entries[all.String()]
		if one == nil {
			one = &entry{labels: all}
			entries[all.String()] = one
		}
		one.samples = append(one.samples, sample{at: scrape.At * 1000, value: value})
	}
}

func evaluate(engine *promql.Engine, memory storage.Queryable, query Query) Answer {
	ctx := context.Background()
	start, end := time.Unix(query.Start, 0), time.Unix(query.End, 0)
	step := time.Duration(query.Step) * time.Second
	asked, err := engine.NewRangeQuery(ctx, memory, nil, query.Expression, start, end, step)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	defer asked.Close()
	matrix, err := asked.Exec(ctx).Matrix()
	if err != nil {
		return Answer{Error: err.Error()}
	}
	answer := Answer{Series: []Series{}}
	for _, one := range matrix {
		series := Series{Labels: one.Metric.Map()}
		for _, point := range one.Floats {
			series.Times = append(series.Times, point.T/1000)
			series.Values = append(series.Values, fmt.Sprint(point.F))
		}
		answer.Series = append(answer.Series, series)
	}
	return answer
}

// found goes through the series that all matchers match.
type found struct {
	list     []*entry
	matchers []*labels.Matcher
	place    int
}

func (f *found) Next() bool {
	for f.place++; f.place < len(f.list); f.place++ {
		one := f.list[f.place].labels
		if !slices.ContainsFunc(f.matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Get(m.Name)) }) {
			return true
		}
	}
	return false
}

func (f *found) At() storage.Series {
	one := f.list[f.place]
	return storage.NewListSeries(one.labels, one.samples)
}

func (*found) Err() error                        { return nil }
func (*found) Warnings() annotations.Annotations { return nil }

// sample is a number at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }
