package controller

import "github.com/orreryhq/orrery/libs/store/view"

// Kinds are the kinds of records that the scheduler reads from the view.
func Kinds() []view.Kind {
	return []view.Kind{
		view.KindGroup, view.KindScaling, view.KindTemplateHead, view.KindCatalog, view.KindPlan, view.KindQuota, view.KindQuotaAlloc, view.KindMaintenance, view.KindActiveOverlay,
		view.KindIntent, view.KindPlacement, view.KindOrder, view.KindStatus, view.KindPending, view.KindName, view.KindEviction, view.KindMove,
		view.KindNode, view.KindNodeDesired, view.KindSession, view.KindAlloc, view.KindReport, view.KindReportPart,
	}
}
