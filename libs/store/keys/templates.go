package keys

import (
	"fmt"
	"net/url"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// The keys of templates, their sources, the catalog and secrets.

// TemplateHead is the current version of a template. Written by the template service.
func TemplateHead(t content.TemplateRef) Key[content.TemplateHead] {
	return Key[content.TemplateHead]{Root + "template-heads/" + t.Group + "/" + t.Name}
}

// TemplateHeads are the heads of all templates.
func TemplateHeads() Prefix[content.TemplateHead] {
	return Prefix[content.TemplateHead]{Root + "template-heads/"}
}

// TemplateVersion is one version of a template. It has a prefix of its own, so that a watch of
// heads does not receive every version. Written by the template service.
func TemplateVersion(t content.TemplateRef, digest string) Key[content.TemplateVersion] {
	return Key[content.TemplateVersion]{Root + "template-versions/" + t.Group + "/" + t.Name + "/" + digest}
}

// TemplateVersions are the versions of one template.
func TemplateVersions(t content.TemplateRef) Prefix[content.TemplateVersion] {
	return Prefix[content.TemplateVersion]{Root + "template-versions/" + t.Group + "/" + t.Name + "/"}
}

// AllTemplateVersions are the versions of all templates.
func AllTemplateVersions() Prefix[content.TemplateVersion] {
	return Prefix[content.TemplateVersion]{Root + "template-versions/"}
}

// TemplateMove is one change of a template's head. The latest 1,000 are kept. Numbers are
// padded, so that keys are in the order of changes. Written by the template service.
func TemplateMove(t content.TemplateRef, number int64) Key[content.TemplateMove] {
	return Key[content.TemplateMove]{Root + "template-moves/" + t.Group + "/" + t.Name + "/" + fmt.Sprintf("%012d", number)}
}

// TemplateMoves are the changes of one template's head.
func TemplateMoves(t content.TemplateRef) Prefix[content.TemplateMove] {
	return Prefix[content.TemplateMove]{Root + "template-moves/" + t.Group + "/" + t.Name + "/"}
}

// TemplateDraft holds the staged edits of one owner: TemplateDraft.Owner or else its author.
// Written by the template service.
func TemplateDraft(t content.TemplateRef, owner string) Key[content.TemplateDraft] {
	return Key[content.TemplateDraft]{Root + "template-drafts/" + t.Group + "/" + t.Name + "/" + url.PathEscape(owner)}
}

// TemplateDrafts are all drafts.
func TemplateDrafts() Prefix[content.TemplateDraft] {
	return Prefix[content.TemplateDraft]{Root + "template-drafts/"}
}

// TemplateDraftsOf are the drafts of one template.
func TemplateDraftsOf(t content.TemplateRef) Prefix[content.TemplateDraft] {
	return Prefix[content.TemplateDraft]{Root + "template-drafts/" + t.Group + "/" + t.Name + "/"}
}

// TemplateGone marks a deleted template. Its history and drafts are removed after a week.
// Written by the template service.
func TemplateGone(t content.TemplateRef) Key[content.TemplateGone] {
	return Key[content.TemplateGone]{Root + "template-gone/" + t.Group + "/" + t.Name}
}

// TemplatesGone are all deleted templates.
func TemplatesGone() Prefix[content.TemplateGone] {
	return Prefix[content.TemplateGone]{Root + "template-gone/"}
}

// TemplatePublish exists while content is stored that no version refers to yet, so that it is
// not collected. It has a lease of its own. Written by the template service.
func TemplatePublish(id string) Key[content.TemplatePublish] {
	return Key[content.TemplatePublish]{Root + "template-publishes/" + id}
}

// TemplatePublishes are all publishes in progress.
func TemplatePublishes() Prefix[content.TemplatePublish] {
	return Prefix[content.TemplatePublish]{Root + "template-publishes/"}
}

// TemplateOperation remembers a change for about an hour, so that a repeated request does not
// repeat it. Written by the template service in the transaction of the change.
func TemplateOperation(id string) Key[content.TemplateOperation] {
	return Key[content.TemplateOperation]{Root + "template-operations/" + id}
}

// TemplateOperations are all remembered changes of templates.
func TemplateOperations() Prefix[content.TemplateOperation] {
	return Prefix[content.TemplateOperation]{Root + "template-operations/"}
}

// TemplateDoomed marks a version that is being deleted. Written by the template service.
func TemplateDoomed(t content.TemplateRef, digest string) Key[content.TemplateDoomed] {
	return Key[content.TemplateDoomed]{Root + "template-doomed/" + t.Group + "/" + t.Name + "/" + digest}
}

// TemplatesDoomed are all versions that are being deleted.
func TemplatesDoomed() Prefix[content.TemplateDoomed] {
	return Prefix[content.TemplateDoomed]{Root + "template-doomed/"}
}

// TemplatesDoomedOf are the versions of one template that are being deleted.
func TemplatesDoomedOf(t content.TemplateRef) Prefix[content.TemplateDoomed] {
	return Prefix[content.TemplateDoomed]{Root + "template-doomed/" + t.Group + "/" + t.Name + "/"}
}

// TemplateSource is a repository, bucket, URL, directory or program that templates come from.
// Written by the gateway.
func TemplateSource(name string) Key[content.TemplateSource] {
	return Key[content.TemplateSource]{Root + "template-sources/" + name}
}

// TemplateSources are all sources.
func TemplateSources() Prefix[content.TemplateSource] {
	return Prefix[content.TemplateSource]{Root + "template-sources/"}
}

// TemplateSourceStatus is the result of the latest synchronisation of a source. Written by the
// replica of the template service that owns the source's shard.
func TemplateSourceStatus(name string) Key[content.SourceStatus] {
	return Key[content.SourceStatus]{Root + "template-source-status/" + name}
}

// TemplateSourceStatuses are the statuses of all sources.
func TemplateSourceStatuses() Prefix[content.SourceStatus] {
	return Prefix[content.SourceStatus]{Root + "template-source-status/"}
}

// TemplateDirectory is the state of a replica's watched directory. Written by that replica of
// the template service; another removes it when the replica has no session.
func TemplateDirectory(replica string) Key[content.TemplateDirectory] {
	return Key[content.TemplateDirectory]{Root + "template-directories/" + replica}
}

// TemplateDirectories are the watched directories of all replicas.
func TemplateDirectories() Prefix[content.TemplateDirectory] {
	return Prefix[content.TemplateDirectory]{Root + "template-directories/"}
}

// DirectoryMemory is what a replica must know about a watched directory after a restart.
// Written by that replica of the template service. A replica with the same directory takes it
// over when the writer has no session; a week later any replica removes it.
func DirectoryMemory(id, replica string) Key[content.DirectoryMemory] {
	return Key[content.DirectoryMemory]{Root + "template-directory-memory/" + id + "/" + replica}
}

// DirectoryMemories are the records about all watched directories.
func DirectoryMemories() Prefix[content.DirectoryMemory] {
	return Prefix[content.DirectoryMemory]{Root + "template-directory-memory/"}
}

// DirectoryMemoriesOf are the records about one watched directory and its copies.
func DirectoryMemoriesOf(id string) Prefix[content.DirectoryMemory] {
	return Prefix[content.DirectoryMemory]{Root + "template-directory-memory/" + id + "/"}
}

// DirectorySync asks all replicas to read their watched directories now. Written by the
// gateway.
func DirectorySync() Key[content.DirectorySync] {
	return Key[content.DirectorySync]{Root + "template-directory-sync"}
}

// CatalogPlatform is a server platform and its versions. Written by the gateway.
func CatalogPlatform(platform string) Key[content.CatalogPlatform] {
	return Key[content.CatalogPlatform]{Root + "catalog/" + platform}
}

// Catalog are all platforms.
func Catalog() Prefix[content.CatalogPlatform] {
	return Prefix[content.CatalogPlatform]{Root + "catalog/"}
}

// Secret holds sealed values. No view holds it; agents read it. Written by the gateway.
func Secret(name string) Key[content.Secret] { return Key[content.Secret]{Root + "secrets/" + name} }

// Secrets are all secrets.
func Secrets() Prefix[content.Secret] { return Prefix[content.Secret]{Root + "secrets/"} }
