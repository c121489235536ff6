package store

import (
	"fmt"
	"net/url"

	"github.com/orreryhq/orrery/libs/fleet"
)

// The keys of templates beside their heads and versions; all are written by templatesvc.

// TemplateMoveKey is one move of a template's head. Numbers are padded, so that keys
// sort as moves happened.
func TemplateMoveKey(t fleet.TemplateRef, number int64) Key[fleet.TemplateMove] {
	return Key[fleet.TemplateMove]{fmt.Sprintf("%s%012d", TemplateMoves(t).path, number)}
}

func TemplateMoves(t fleet.TemplateRef) Prefix[fleet.TemplateMove] {
	return Prefix[fleet.TemplateMove]{Root + "template-moves/" + t.Group + "/" + t.Name + "/"}
}

// TemplateDraftKey is what an owner has staged, fleet.TemplateDraft.Owner or else the
// author; whatever that is, it is one segment.
func TemplateDraftKey(t fleet.TemplateRef, owner string) Key[fleet.TemplateDraft] {
	return Key[fleet.TemplateDraft]{Root + "template-drafts/" + t.Group + "/" + t.Name + "/" + url.PathEscape(owner)}
}

// TemplateDraftsOf are the drafts of one template.
func TemplateDraftsOf(t fleet.TemplateRef) Prefix[fleet.TemplateDraft] {
	return Prefix[fleet.TemplateDraft]{TemplateDrafts().path + t.Group + "/" + t.Name + "/"}
}

// TemplateGoneKey stands for a template that was removed, while anything of it is left.
func TemplateGoneKey(t fleet.TemplateRef) Key[fleet.TemplateGone] {
	return Key[fleet.TemplateGone]{TemplatesGone().path + t.Group + "/" + t.Name}
}

func TemplatesGone() Prefix[fleet.TemplateGone] {
	return Prefix[fleet.TemplateGone]{Root + "template-gone/"}
}

func TemplateDrafts() Prefix[fleet.TemplateDraft] {
	return Prefix[fleet.TemplateDraft]{Root + "template-drafts/"}
}

// TemplatePublishKey stands while content is stored that no version names yet.
func TemplatePublishKey(id string) Key[fleet.TemplatePublish] {
	return Key[fleet.TemplatePublish]{Root + "template-publishes/" + id}
}

func TemplatePublishes() Prefix[fleet.TemplatePublish] {
	return Prefix[fleet.TemplatePublish]{Root + "template-publishes/"}
}

// TemplateOperationKey remembers a change by the name its asker gave it, for an hour or
// some minutes more: it stands on a lease.
func TemplateOperationKey(id string) Key[fleet.TemplateOperation] {
	return Key[fleet.TemplateOperation]{TemplateOperations().path + id}
}

func TemplateOperations() Prefix[fleet.TemplateOperation] {
	return Prefix[fleet.TemplateOperation]{Root + "template-operations/"}
}

func TemplateDoomedKey(t fleet.TemplateRef, digest string) Key[fleet.TemplateDoomed] {
	return Key[fleet.TemplateDoomed]{Root + "template-doomed/" + t.Group + "/" + t.Name + "/" + digest}
}

// TemplatesDoomedOf are the versions of one template that are being deleted.
func TemplatesDoomedOf(t fleet.TemplateRef) Prefix[fleet.TemplateDoomed] {
	return Prefix[fleet.TemplateDoomed]{TemplatesDoomed().path + t.Group + "/" + t.Name + "/"}
}

func TemplatesDoomed() Prefix[fleet.TemplateDoomed] {
	return Prefix[fleet.TemplateDoomed]{Root + "template-doomed/"}
}

// AllTemplateVersions are the versions of every template.
func AllTemplateVersions() Prefix[fleet.TemplateVersion] {
	return Prefix[fleet.TemplateVersion]{Root + "template-versions/"}
}

// Plans are all plans that instances are built from.
func Plans() Prefix[fleet.StoredPlan] { return Prefix[fleet.StoredPlan]{Root + "plans/"} }
