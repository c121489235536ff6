package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/kinds"
)

// MaxSize is how many bytes an input may have.
const MaxSize = 16 << 20

// maxErrors is how many mistakes are reported at once.
const maxErrors = 20

// Read returns the documents in files, in directories with everything below them, and in stdin for
// the path "-". It checks their kinds, their names and the names of their fields. The error joins
// the mistakes that it found.
func Read(paths []string, stdin io.Reader) ([]Document, error) {
	var documents []Document
	var mistakes []error
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			mistakes = append(mistakes, err)
		}
		for _, file := range files {
			content, err := readFile(file, stdin)
			if err == nil {
				var found []Document
				found, err = Parse(displayName(file), content)
				documents = append(documents, found...)
			}
			mistakes = append(mistakes, split(err)...)
		}
	}
	mistakes = append(mistakes, duplicates(documents)...)
	if len(documents) == 0 && len(mistakes) == 0 {
		names := make([]string, len(paths))
		for i, path := range paths {
			names[i] = displayName(path)
		}
		return nil, fmt.Errorf("there is no document in %s", strings.Join(names, ", "))
	}
	return documents, joined(mistakes)
}

// joined returns the first mistakes as one error, or nil without mistakes.
func joined(mistakes []error) error {
	if more := len(mistakes) - maxErrors; more > 0 {
		mistakes = append(mistakes[:maxErrors:maxErrors], fmt.Errorf("and %d more mistakes", more))
	}
	return errors.Join(mistakes...)
}

// split returns the errors that errors.Join put together.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// expand returns the files of a path: itself, or those of a directory.
func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	if strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://") {
		return nil, fmt.Errorf("%s is a URL; download it and pass it on: curl -fsS %s | orrery apply -f -", path, path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(entry.Name(), ".") && name != path {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if isDocument(name, entry) {
			files = append(files, name)
		}
		return nil
	})
	slices.Sort(files)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no file *.yaml, *.yml or *.json in %s", path)
	}
	return files, err
}

// isDocument reports whether a file of a directory has the ending of a document. A link counts as
// what it leads to.
func isDocument(path string, entry fs.DirEntry) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
	default:
		return false
	}
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Type().IsRegular()
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func displayName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

func readFile(file string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		from = opened
	}
	content, err := io.ReadAll(io.LimitReader(from, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", displayName(file), err)
	}
	if len(content) > MaxSize {
		return nil, fmt.Errorf("%s has more than %d MiB; split it", displayName(file), MaxSize>>20)
	}
	return content, nil
}

// Parse returns the documents in the content of a file and checks them. The error joins the mistakes.
func Parse(file string, content []byte) ([]Document, error) {
	values, err := parse(file, content)
	if err != nil {
		return nil, err
	}
	var documents []Document
	var mistakes []error
	for _, value := range values {
		if value.shape == listShape {
			for _, item := range value.items {
				mistakes = append(mistakes, add(&documents, file, item)...)
			}
			continue
		}
		mistakes = append(mistakes, add(&documents, file, value)...)
	}
	return documents, errors.Join(mistakes...)
}

// parse returns the values in content. JSON is not quite YAML, so text that begins like JSON is read
// as JSON, unless only YAML can read it.
func parse(file string, content []byte) ([]*node, error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	begin := bytes.TrimLeft(content, " \t\r\n")
	if strings.EqualFold(filepath.Ext(file), ".json") {
		return parseJSON(file, content)
	}
	if !bytes.HasPrefix(begin, []byte("{")) && !bytes.HasPrefix(begin, []byte("[")) {
		return parseYAML(file, content)
	}
	values, err := parseJSON(file, content)
	if err == nil {
		return values, nil
	}
	if values, yamlErr := parseYAML(file, content); yamlErr == nil {
		return values, nil
	}
	return nil, err
}

// add adds the document that value is, or returns its mistakes.
func add(documents *[]Document, file string, value *node) []error {
	d, mistakes := document(file, value)
	if len(mistakes) == 0 {
		*documents = append(*documents, d)
	}
	return mistakes
}

// document returns the document that value is.
func document(file string, value *node) (Document, []error) {
	if value.shape != objectShape {
		return Document{}, []error{errorAt(file, value.place, `a document is an object with kind and name, for example {"kind": "Group", "name": "lobby"}`)}
	}
	kindText, err := textField(file, value, "kind")
	if err != nil {
		return Document{}, []error{err}
	}
	kind, err := kindOf(file, value, kindText)
	if err != nil {
		return Document{}, []error{err}
	}
	name, err := textField(file, value, "name")
	if err != nil {
		return Document{}, []error{err}
	}
	d := Document{Kind: kind.Document, Name: name, file: file, tree: value}
	mistakes := d.check(kind)
	d.Fields, _ = value.value().(map[string]any) // an object, as checked above
	delete(d.Fields, "kind")
	delete(d.Fields, "name")
	for _, ignored := range d.Ignored {
		delete(d.Fields, ignored)
	}
	if v, ok := d.Fields[kind.KindField]; ok {
		delete(d.Fields, kind.KindField)
		d.Fields[apiKindField] = v
	}
	return d, mistakes
}

// textField returns the value of kind or name.
func textField(file string, value *node, name string) (string, error) {
	f := value.field(name)
	if f == nil {
		return "", errorAt(file, value.place, "the document has no %s", name)
	}
	text, ok := f.value.scalar.(string)
	switch {
	case ok && text != "":
		return text, nil
	case f.value.shape == scalarShape && !ok && f.value.scalar != nil:
		return "", errorAt(file, f.value.place, "%s must be a text: write %q in quotes", name, fmt.Sprint(f.value.scalar))
	}
	return "", errorAt(file, f.place, "%s must be a text that is not empty", name)
}

// declarable reports whether a kind has documents.
func declarable(k *kinds.Kind) bool { return k.Document != "" }

// duplicates returns an error for each document whose object an earlier one declares.
func duplicates(documents []Document) []error {
	var mistakes []error
	firsts := map[string]*Document{}
	for i := range documents {
		d := &documents[i]
		key := d.Key()
		if earlier, ok := firsts[key]; ok {
			mistakes = append(mistakes, &Error{Position: d.Start(), Message: fmt.Sprintf("%s is declared twice, first at %s", d, earlier.Start())})
			continue
		}
		firsts[key] = d
	}
	return mistakes
}

// Key identifies the object of the document. Two documents with the same key declare the same object.
func (d *Document) Key() string { return Key(d.Object(), d.Name) }

// Key identifies an object.
func Key(kind *kinds.Kind, name string) string {
	if kind.UpperCase {
		name = strings.ToUpper(name)
	}
	return kind.Document + "/" + name
}
