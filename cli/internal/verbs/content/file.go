package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates/filetree"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func fileCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "file", Aliases: []string{"files"},
		Short: "Read and change files of instances",
		Long: `Paths are below the directory of the instance. Only files of static instances can be changed. What a change replaces or
removes is kept for a day: see orrery file versions and orrery file restore.`,
		Example: `orrery file ls lobby-1
orrery file cat lobby-1 server.properties
orrery file edit lobby-1 server.properties`,
	})
	cmd.AddCommand(fileList(a), fileCat(a), fileGet(a), filePut(a), fileEdit(a), fileRemove(a), fileMkdir(a), fileMove(a), fileVersions(a), fileRestore(a))
	return cmd
}

// onInstance runs an act on one instance.
func onInstance(ctx context.Context, a *app.App, name string, act func(client *orrery.Client) error) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	err = act(client)
	var refusal *orrery.Error
	if errors.As(err, &refusal) {
		switch refusal.Code {
		case "FILE_NOT_FOUND":
			return exit.Hint(err, "orrery file ls "+name+" lists the files")
		case "NOT_REGULAR_FILE":
			return exit.Hint(err, "orrery file ls "+name+" DIRECTORY lists the files of a directory")
		}
	}
	if err != nil {
		return app.Suggest(ctx, client, err, kinds.Get("instance"), "", name)
	}
	return nil
}

// filePart is a list of files of an instance.
func filePart(plural, route, data, nameField string, columns []output.Column) *kinds.Kind {
	p := command.Part(plural, "/api/v1/services/{group}/files"+route, nameField, columns)
	p.Data = data
	return p
}

func filesOfInstance(long bool) *kinds.Kind {
	return filePart("files", "", "entries", "name", []output.Column{
		{Header: "NAME", Path: "name"},
		{Header: "DIRECTORY", Path: "isDirectory"},
		{Header: "SIZE", Path: "size", Text: kinds.SizeCell, Wide: !long},
		{Header: "MODIFIED", Path: "modifiedAt", Text: kinds.MomentCell, Wide: !long},
	})
}

func fileList(a *app.App) *cobra.Command {
	var long bool
	cmd := command.New(a, command.Spec{
		Use: "ls INSTANCE [DIRECTORY]", Aliases: []string{"list"}, Short: "List files of an instance",
		Example: `orrery file ls lobby-1
orrery file ls lobby-1 logs -l`,
		Args: command.Between(1, 2, "the name of an instance, and a directory of it"), Complete: completeFiles(a, true),
		Run: func(ctx context.Context, args []string) error {
			query := map[string][]string{"path": {append(args, "")[1]}}
			return command.PrintPart(ctx, a, filesOfInstance(long), kinds.Get("instance"), args[0], query)
		},
	})
	cmd.Flags().BoolVarP(&long, "long", "l", false, "also show sizes and times")
	return cmd
}

// completeFiles completes an instance and then its files; more says that there are several.
func completeFiles(a *app.App, more bool) cobra.CompletionFunc {
	return command.CompleteFirst(a, "instance", func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 && !more {
			return nil, none
		}
		client, err := a.Client()
		if err != nil {
			return nil, none
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), command.CompletionTimeout)
		defer cancel()
		dir, _ := path.Split(toComplete)
		found, err := client.ListInstanceFiles(ctx, cmd.Flags().Arg(0), &orrery.ListInstanceFilesParams{Path: path.Clean("/" + dir)[1:]})
		if err != nil {
			return nil, none
		}
		var names []string
		for _, e := range found.Entries {
			name := dir + e.Name
			if e.IsDirectory {
				name += "/"
			}
			names = append(names, name)
		}
		return names, none | cobra.ShellCompDirectiveNoSpace
	})
}

const (
	// maxText is how many bytes of a file the server sends.
	maxText = 1 << 20
	pathOf  = "the name of an instance and a path"
)

func fileCat(a *app.App) *cobra.Command {
	var tail int
	cmd := command.New(a, command.Spec{
		Use: "cat INSTANCE FILE", Short: "Print a text file of an instance", OnlyText: true,
		Long: "At most 1 MiB is printed. Values of secrets are shown as ***.",
		Example: `orrery file cat lobby-1 server.properties
orrery file cat lobby-1 logs/latest.log --tail 4096`,
		Args: command.Between(2, 2, pathOf), Complete: completeFiles(a, false),
		Run: func(ctx context.Context, args []string) error {
			return onInstance(ctx, a, args[0], func(client *orrery.Client) error {
				params := &orrery.GetInstanceFileParams{Path: args[1], MaxBytes: new(maxText), Tail: tail > 0}
				if tail > 0 {
					params.MaxBytes = &tail
				}
				found, err := client.GetInstanceFile(ctx, args[0], params)
				if err != nil {
					return err
				}
				if _, err := io.WriteString(a.Out, found.Content); err != nil {
					return err
				}
				if found.Truncated && tail == 0 {
					a.Notef("only the first %s of %s are shown; --tail %d shows the end", kinds.Size(maxText), kinds.Size(found.TotalSizeBytes), maxText)
				}
				return nil
			})
		},
	})
	command.Number(cmd.Flags(), &tail, "tail", 1, "print only the last `bytes` of the file")
	command.CompleteFlag(cmd, "tail", cobra.NoFileCompletions)
	return cmd
}

func fileGet(a *app.App) *cobra.Command {
	var force bool
	cmd := command.New(a, command.Spec{
		Use: "get INSTANCE FILE [LOCAL]", Short: "Copy a text file of an instance to this machine",
		Long: "The default is the same name in the current directory. Files larger than 1 MiB and binary files are not sent by the server.",
		Example: `orrery file get lobby-1 server.properties
orrery file get lobby-1 server.properties ./lobby-1.properties --force`,
		Args: command.Between(2, 3, pathOf+", and a file of this machine"), Complete: completeFiles(a, false),
		Run: func(ctx context.Context, args []string) error {
			local := append(args, path.Base(args[1]))[2]
			return onInstance(ctx, a, args[0], func(client *orrery.Client) error {
				found, err := wholeFile(ctx, client, args[0], args[1])
				if err != nil {
					return err
				}
				if found.Masked {
					a.Notef("the copy has *** where the file has values of secrets")
				}
				if err := app.WriteFile(local, []byte(found.Content), force); err != nil {
					return err
				}
				return a.Say(map[string]any{"path": found.Path, "file": local, "sizeBytes": len(found.Content)}, local, "%s of %s is in %s", args[1], args[0], local)
			})
		},
	})
	cmd.Flags().BoolVar(&force, "force", false, "replace a file of this machine")
	return cmd
}

// wholeFile returns a text file, and fails if the server sends only a part of it.
func wholeFile(ctx context.Context, client *orrery.Client, instance, file string) (*orrery.GetInstanceFileResult, error) {
	found, err := client.GetInstanceFile(ctx, instance, &orrery.GetInstanceFileParams{Path: file, MaxBytes: new(maxText)})
	var refusal *orrery.Error
	if errors.As(err, &refusal) && refusal.Status == http.StatusUnsupportedMediaType {
		return nil, exit.Hint(err, "the server sends text only; copy it on the node, or push it with a template")
	}
	if err == nil && found.Truncated {
		err = fmt.Errorf("%s of %s has %s, more than the %s that the server sends", file, instance, kinds.Size(found.TotalSizeBytes), kinds.Size(maxText))
		err = exit.Hint(err, fmt.Sprintf("orrery file cat %s %s --tail %d prints its end", instance, file, maxText))
	}
	return found, err
}

// sayChanged prints what was done to a file, and warns if a template will replace it.
func sayChanged(a *app.App, done *orrery.InstanceFileResponse, instance, what, did string) error {
	if done.ReplacedAtNextStart {
		a.Notef("if a template has %s, that of the template replaces it when %s starts again", done.Path, instance)
	}
	if done.DryRun {
		did = "would be " + did
	}
	return a.Say(done, done.Path, "%s of %s %s", what, instance, did)
}

func filePut(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "put INSTANCE LOCAL [FILE]", Short: "Copy a file of this machine to an instance",
		Long: "The default is the same name in the directory of the instance. A file that exists is replaced, and kept for a day. LOCAL - is standard input.",
		Example: `orrery file put lobby-1 server.properties
orrery file put lobby-1 world.zip backups/world.zip`,
		Args: command.Between(2, 3, "the name of an instance, a file of this machine, and a path"), Complete: command.CompleteFirst(a, "instance", command.LocalFiles),
		Run: func(ctx context.Context, args []string) error {
			if args[1] == "-" && len(args) < 3 {
				return command.UsageError("orrery file put INSTANCE - FILE", "standard input has no name: name the file of the instance")
			}
			target := append(args, path.Base(args[1]))[2]
			return onInstance(ctx, a, args[0], func(client *orrery.Client) error { return putFile(ctx, a, client, args[0], args[1], target) })
		},
	})
}

func putFile(ctx context.Context, a *app.App, client *orrery.Client, instance, local, target string) error {
	open, total, err := openLocal(a, local)
	if err != nil {
		return err
	}
	bar := progress.NewTransfer(a, "uploading", total)
	form := &orrery.Form{Files: []orrery.FormFile{{Field: "file", Name: path.Base(target), Open: func() (io.ReadCloser, error) {
		content, err := open()
		if err != nil {
			return nil, err
		}
		return bar.Reader(content, 0), nil
	}}}}
	done, err := client.UploadInstanceFile(ctx, instance, form, &orrery.UploadInstanceFileParams{Path: filetree.Dir(target)})
	bar.End()
	if err != nil {
		return exit.Explain(err, target+" of "+instance+" was not changed")
	}
	return sayChanged(a, done, instance, done.Path, "written ("+kinds.Size(done.SizeBytes)+")")
}

func fileEdit(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "edit INSTANCE FILE", Short: "Change a text file of an instance in an editor",
		Long:    "If the file changed meanwhile, it stays as it is, and both texts are kept on this machine.",
		Example: "orrery file edit lobby-1 server.properties",
		Args:    command.Between(2, 2, pathOf), Complete: completeFiles(a, false),
		Run: func(ctx context.Context, args []string) error {
			return onInstance(ctx, a, args[0], func(client *orrery.Client) error { return editFile(ctx, a, client, args[0], args[1]) })
		},
	})
}

func editFile(ctx context.Context, a *app.App, client *orrery.Client, instance, file string) error {
	old, err := wholeFile(ctx, client, instance, file)
	if err != nil {
		return err
	}
	edited, err := a.EditText(ctx, file, old.Content)
	if err != nil || edited == nil {
		return err
	}
	params := &orrery.ReplaceInstanceFileParams{Path: file, IfMatch: old.ETag}
	done, err := client.ReplaceInstanceFile(ctx, instance, &orrery.ReplaceInstanceFileRequest{Content: string(edited)}, params)
	if err != nil {
		a.KeepEdited(err, path.Base(file), edited, func() (string, error) {
			now, err := wholeFile(ctx, client, instance, file)
			if err != nil {
				return "", err
			}
			return now.Content, nil
		})
		return err
	}
	return sayChanged(a, done, instance, done.Path, "written ("+kinds.Size(done.SizeBytes)+")")
}

func fileRemove(a *app.App) *cobra.Command {
	var dryRun, forget bool
	cmd := command.New(a, command.Spec{
		Use: "rm INSTANCE PATH...", Aliases: []string{"delete"}, Short: "Delete files or directories of an instance",
		Long:    "A directory is deleted with its content. The server keeps the content for a day, unless --forget is given.",
		Example: "orrery file rm lobby-1 logs/old.log --dry-run",
		Args:    command.Between(2, -1, pathOf), Complete: completeFiles(a, true),
		Run: func(ctx context.Context, args []string) error {
			return command.Each(ctx, a, args[1:], func(p string) error {
				return onInstance(ctx, a, args[0], func(client *orrery.Client) error {
					remove := client.DeleteInstanceFile
					if dryRun {
						remove = client.DeleteInstanceFileDryRun
					}
					params := &orrery.DeleteInstanceFileParams{Path: p}
					if forget {
						params.Keep = new(false)
					}
					done, err := remove(ctx, args[0], params)
					if err != nil {
						return err
					}
					return sayChanged(a, done, args[0], done.Path, "deleted")
				})
			})
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	cmd.Flags().BoolVar(&forget, "forget", false, "do not keep the content for a day")
	return cmd
}

func fileMkdir(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "mkdir INSTANCE DIRECTORY...", Short: "Make directories of an instance",
		Example: "orrery file mkdir lobby-1 backups --dry-run",
		Args:    command.Between(2, -1, pathOf), Complete: completeFiles(a, true),
		Run: func(ctx context.Context, args []string) error {
			return command.Each(ctx, a, args[1:], func(p string) error {
				return onInstance(ctx, a, args[0], func(client *orrery.Client) error {
					create := client.CreateInstanceDirectory
					if dryRun {
						create = client.CreateInstanceDirectoryDryRun
					}
					done, err := create(ctx, args[0], &orrery.CreateInstanceDirectoryRequest{Path: p})
					if err != nil {
						return err
					}
					return sayChanged(a, done, args[0], "directory "+done.Path, "made")
				})
			})
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func fileMove(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "mv INSTANCE FROM TO", Aliases: []string{"rename"}, Short: "Rename a file or directory of an instance",
		Example: "orrery file mv lobby-1 world old-world --dry-run",
		Args:    command.Between(3, 3, "the name of an instance, the old and the new path"), Complete: completeFiles(a, true),
		Run: func(ctx context.Context, args []string) error {
			return onInstance(ctx, a, args[0], func(client *orrery.Client) error {
				rename := client.RenameInstanceFile
				if dryRun {
					rename = client.RenameInstanceFileDryRun
				}
				done, err := rename(ctx, args[0], &orrery.RenameInstanceFileRequest{From: args[1], To: args[2]}, nil)
				if err != nil {
					return err
				}
				return sayChanged(a, done, args[0], done.From, "renamed to "+done.Path)
			})
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func fileVersions(a *app.App) *cobra.Command {
	kept := filePart("previous contents", "/versions", "versions", "id", []output.Column{
		{Header: "ID", Path: "id"},
		{Header: "PATH", Path: "path"},
		{Header: "SIZE", Path: "sizeBytes", Text: kinds.SizeCell},
		{Header: "KEPT AT", Path: "at", Text: kinds.MomentCell},
		{Header: "UNTIL", Path: "until", Text: kinds.MomentCell},
		{Header: "BECAUSE OF", Path: "by"},
	})
	return command.New(a, command.Spec{
		Use: "versions INSTANCE [PATH]", Short: "List previous contents of files of an instance",
		Example: "orrery file versions lobby-1 server.properties",
		Args:    command.Between(1, 2, "the name of an instance, and a path"), Complete: completeFiles(a, false),
		Run: func(ctx context.Context, args []string) error {
			query := map[string][]string{"path": {append(args, "")[1]}}
			return command.PrintPart(ctx, a, kept, kinds.Get("instance"), args[0], query)
		},
	})
}

func fileRestore(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "restore INSTANCE VERSION", Short: "Bring a previous content of a file back",
		Long:    "orrery file versions INSTANCE lists the versions. The present content is kept for a day.",
		Example: "orrery file restore lobby-1 SGCFREYGLPTGQRJCKFZ2 --dry-run",
		Args:    command.Between(2, 2, "the name of an instance and a version"),
		Complete: command.CompleteFirst(a, "instance", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			kept := filePart("previous contents", "/versions", "versions", "id", nil)
			return command.NamesIn(cmd.Context(), a, kept, cmd.Flags().Arg(0)), cobra.ShellCompDirectiveNoFileComp
		}),
		Run: func(ctx context.Context, args []string) error {
			return onInstance(ctx, a, args[0], func(client *orrery.Client) error {
				restore := client.RestoreInstanceFile
				if dryRun {
					restore = client.RestoreInstanceFileDryRun
				}
				done, err := restore(ctx, args[0], &orrery.RestoreInstanceFileRequest{Version: args[1]}, nil)
				if err != nil {
					return err
				}
				return sayChanged(a, done, args[0], done.Path, "restored ("+kinds.Size(done.SizeBytes)+")")
			})
		},
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

// openLocal returns how to read a file of this machine, or standard input for "-", and its size; 0 if
// it is not known.
func openLocal(a *app.App, name string) (open func() (io.ReadCloser, error), size int64, err error) {
	if name == "-" {
		content, err := a.ReadFile(name)
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, int64(len(content)), err
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, command.UsageError("name a file", "%s is not a file", name)
	}
	return func() (io.ReadCloser, error) { return os.Open(name) }, info.Size(), nil
}
