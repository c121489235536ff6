package reading

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func describe(a *app.App) *cobra.Command {
	var group string
	var composition, resolved bool
	cmd := command.New(a, command.Spec{
		Use: "describe KIND NAME...", Aliases: []string{"inspect", "show"},
		Short: "Show everything about one object",
		Long: `--composition shows what an instance is made of: its layers with their hashes, variables, environment, patches and ports.
--resolved shows a group with the fields that it inherits from its parents; "sources" has the group that sets each one.`,
		Example: `orrery describe instance lobby-1
orrery describe instance lobby-1 --composition
orrery describe group lobby
orrery describe group lobby --resolved`,
		Args:     command.Between(1, -1, "a kind and a name, for example instance lobby-1"),
		Complete: command.CompleteKindThenNames(a, nil),
		Run: func(ctx context.Context, args []string) error {
			var v view
			switch {
			case composition:
				v.kind, v.path, v.flag = "instance", "/composition", "--composition"
			case resolved:
				v.kind, v.path, v.flag = "group", "/resolved", "--resolved"
			}
			return runDescribe(ctx, a, getOptions{group: group}, v, args)
		},
	})
	cmd.Flags().BoolVar(&composition, "composition", false, "show what an instance is made of")
	cmd.Flags().BoolVar(&resolved, "resolved", false, "show a group with the fields that it inherits")
	cmd.MarkFlagsMutuallyExclusive("composition", "resolved")
	cmd.Flags().StringVar(&group, "group", "", "the `group`, for kinds that belong to one")
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	return cmd
}

// view is another way in which the API shows an object of a kind. The zero value is the object itself.
type view struct{ kind, path, flag string }

// rows returns the objects of a query in this view.
func (v view) rows(ctx context.Context, client *orrery.Client, q *query) ([]output.Row, error) {
	if v.path == "" {
		return q.rows(ctx, client)
	}
	rows := make([]output.Row, len(q.names))
	for i, name := range q.names {
		err := client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: q.kind.ObjectPath("", name) + v.path}, &rows[i])
		if err != nil {
			return nil, app.Suggest(ctx, client, err, q.kind, "", name)
		}
	}
	return rows, nil
}

func runDescribe(ctx context.Context, a *app.App, o getOptions, v view, args []string) error {
	q, err := parseQuery(a, o, args)
	if err != nil {
		return err
	}
	if v.kind != "" && v.kind != q.kind.Name {
		return command.UsageError("leave it out", "%s is for %s, not for %s", v.flag, kinds.Get(v.kind).Plural, q.kind.Plural)
	}
	if len(q.names) == 0 && !q.kind.Singleton {
		return command.UsageError("orrery get "+q.kind.Plural+" lists the names", "describe needs the name of %s %s", kinds.Article(q.kind.Name), q.kind.Name)
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	rows, err := v.rows(ctx, client, q)
	if err != nil {
		return err
	}
	for i, row := range rows {
		if i > 0 && q.printer.Format.ForPeople() {
			fmt.Fprintln(a.Out)
		}
		if err := describeRow(a, q, row); err != nil {
			return err
		}
	}
	return nil
}

func describeRow(a *app.App, q *query, row output.Row) error {
	if !q.printer.Format.ForPeople() {
		return q.printer.Object(q.kind.Columns, q.kind.NameField, row)
	}
	return Fields(a.Out, q.printer.Style, row, q.kind)
}

// Fields prints the fields of an object of a kind, one a line, nested ones indented. Fields without a value are left
// out, and of long lists of objects the end.
func Fields(out io.Writer, style output.Style, row output.Row, kind *kinds.Kind) error {
	if !gjson.ValidBytes(row) {
		return exit.With(exit.Failed, fmt.Errorf("the answer is not JSON"), "")
	}
	var b strings.Builder
	w := fieldWriter{style: style, rest: func(list string) string { return restOf(kind, row, list) }}
	w.fields(&b, gjson.ParseBytes(row), "")
	_, err := io.WriteString(out, b.String())
	return err
}

// restOf returns the command that prints all objects of a list in an object: those of another kind are selected by it.
func restOf(kind *kinds.Kind, row output.Row, list string) string {
	name := gjson.GetBytes(row, kind.NameField).String()
	if listed := kinds.Find(list); listed != nil && listed.TakesFilter(kind.Name) {
		return fmt.Sprintf("orrery get %s --%s %s", listed.Plural, kind.Name, name)
	}
	return fmt.Sprintf("orrery get %s %s -o yaml", kind.Name, name)
}

const (
	indentation = "  "
	// shownElements is how many objects of a list are printed.
	shownElements = 20
)

// fieldWriter writes the fields of an object. rest returns the command that prints all of a list.
type fieldWriter struct {
	style output.Style
	rest  func(list string) string
}

func (w fieldWriter) fields(b *strings.Builder, object gjson.Result, indent string) {
	style := w.style
	width := 0
	object.ForEach(func(name, value gjson.Result) bool {
		if simple(value) {
			width = max(width, len(name.String()))
		}
		return true
	})
	object.ForEach(func(name, value gjson.Result) bool {
		switch {
		case empty(value):
		case simple(value):
			label := style.Bold(name.String() + ":")
			fmt.Fprintf(b, "%s%s%s %s\n", indent, label, strings.Repeat(" ", width-len(name.String())), simpleText(style, name.String(), value, indent))
		case value.IsArray():
			fmt.Fprintf(b, "%s%s\n", indent, style.Bold(name.String()+":"))
			elements := value.Array()
			for _, element := range elements[:min(len(elements), shownElements)] {
				w.element(b, element, indent+indentation)
			}
			if more := len(elements) - shownElements; more > 0 {
				fmt.Fprintf(b, "%sand %d more: %s\n", indent+indentation, more, output.Clean(w.rest(name.String())))
			}
		default:
			fmt.Fprintf(b, "%s%s\n", indent, style.Bold(name.String()+":"))
			w.fields(b, value, indent+indentation)
		}
		return true
	})
}

// element writes an object of a list, whose first line begins with a dash.
func (w fieldWriter) element(b *strings.Builder, element gjson.Result, indent string) {
	if !element.IsObject() {
		fmt.Fprintf(b, "%s- %s\n", indent, output.Clean(element.String()))
		return
	}
	var inner strings.Builder
	w.fields(&inner, element, indent+indentation)
	b.WriteString(indent + "- " + strings.TrimPrefix(inner.String(), indent+indentation))
}

func empty(v gjson.Result) bool {
	return v.Type == gjson.Null || v.Raw == `""` || v.Raw == "[]" || v.Raw == "{}"
}

// simple values are written on the line of their name: scalars, and lists of scalars.
func simple(v gjson.Result) bool {
	if v.IsObject() {
		return false
	}
	if !v.IsArray() {
		return true
	}
	for _, element := range v.Array() {
		if element.IsObject() || element.IsArray() {
			return false
		}
	}
	return true
}

func simpleText(style output.Style, name string, v gjson.Result, indent string) string {
	if v.IsArray() {
		var parts []string
		for _, element := range v.Array() {
			parts = append(parts, output.Clean(element.String()))
		}
		return strings.Join(parts, ", ")
	}
	if name == "state" || name == "status" {
		return style.State(output.Clean(v.String()))
	}
	text := output.Clean(v.String())
	if strings.Contains(text, "\n") {
		text = "\n" + indent + indentation + strings.ReplaceAll(text, "\n", "\n"+indent+indentation)
	}
	return text
}
