package toolset

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of how the parts of a schema that are about the same value refer to one another: how deep, and how many checks of one
// value that makes. Hand-written schemas have a few.
const (
	maxRefDepth  = 100
	maxRefChecks = 100_000
)

// checkRefs refuses a schema that refers to itself without going on to a part of the value, which would be checked for ever, and
// one that is so entangled that it might as well. It may refuse what an $id within the schema makes harmless.
func checkRefs(raw json.RawMessage) error {
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return err
	}
	g := &refGraph{nodes: map[string]*refNode{}, anchors: map[string][]*refNode{}, bases: []string{""}}
	g.collect("", doc)
	for path, n := range g.nodes {
		if err := g.visit(path, n, 0); err != nil {
			return err
		}
	}
	return nil
}

// refGraph is the objects of a schema by their JSON pointers.
type refGraph struct {
	nodes   map[string]*refNode
	anchors map[string][]*refNode
	bases   []string // of pointers: the whole, and what has an $id
}

// refNode is an object that may be a schema.
type refNode struct {
	object map[string]any
	path   string
	state  int // 0, visiting, visited
	depth  int
	checks float64
}

func (g *refGraph) collect(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		n := &refNode{object: value, path: path}
		g.nodes[path] = n
		for _, key := range []string{"$anchor", "$dynamicAnchor"} {
			if name, ok := value[key].(string); ok {
				g.anchors[name] = append(g.anchors[name], n)
			}
		}
		if _, ok := value["$id"].(string); ok && path != "" {
			g.bases = append(g.bases, path)
		}
		for key, inner := range value {
			g.collect(path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), inner)
		}
	case []any:
		for i, inner := range value {
			g.collect(path+"/"+strconv.Itoa(i), inner)
		}
	}
}

// next are the objects that check the same value as n.
func (g *refGraph) next(n *refNode) (all []*refNode) {
	add := func(path string) {
		if to := g.nodes[path]; to != nil {
			all = append(all, to)
		}
	}
	for _, key := range []string{"not", "if", "then", "else"} {
		add(n.path + "/" + key)
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := n.object[key].([]any)
		for i := range list {
			add(n.path + "/" + key + "/" + strconv.Itoa(i))
		}
	}
	for _, key := range []string{"dependentSchemas", "dependencies"} {
		of, _ := n.object[key].(map[string]any)
		for name := range of {
			add(n.path + "/" + key + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
		}
	}
	for _, key := range []string{"$ref", "$dynamicRef"} {
		ref, ok := n.object[key].(string)
		if !ok {
			continue
		}
		_, fragment, _ := strings.Cut(ref, "#")
		if plain, err := url.PathUnescape(fragment); err == nil {
			fragment = plain
		}
		if fragment != "" && fragment[0] != '/' {
			all = append(all, g.anchors[fragment]...)
			continue
		}
		for _, base := range g.bases {
			add(base + fragment)
		}
	}
	return all
}

const (
	visiting = 1
	visited  = 2
)

func (g *refGraph) visit(path string, n *refNode, above int) error {
	switch {
	case n.state == visiting:
		return fmt.Errorf("%q refers to itself, and no value could ever be checked against it", "#"+path)
	case above > maxRefDepth:
		return fmt.Errorf("its references go deeper than %d", maxRefDepth)
	case n.state == visited:
		return nil
	}
	n.state, n.checks = visiting, 1
	for _, to := range g.next(n) {
		if err := g.visit(to.path, to, above+1); err != nil {
			return err
		}
		n.checks += to.checks
		n.depth = max(n.depth, to.depth+1)
	}
	n.state = visited
	if n.checks > maxRefChecks || n.depth > maxRefDepth {
		return fmt.Errorf("%q refers to so much that a value would be checked against it without end", "#"+path)
	}
	return nil
}
